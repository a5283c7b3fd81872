"""The model: weights, tokenizer, KV tensors, attention, forward, sampling."""
