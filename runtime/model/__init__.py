"""The model: weights, tokenizer, KV tensors, attention, forward, sampling. The only package with torch."""
