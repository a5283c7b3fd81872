"""Makes the OpenVINO form of the model beside the others: the same weights, uncompressed, and a tokenizer."""

import argparse
import os
import shutil
from pathlib import Path


def main() -> None:
    """folder/openvino from folder/hf."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    folder: Path = parser.parse_args().model
    done = folder / "openvino"
    if done.exists():
        return
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel import OVModelForCausalLM
    from transformers import AutoTokenizer

    unfinished = folder / "openvino.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    model = OVModelForCausalLM.from_pretrained(folder / "hf", export=True, load_in_8bit=False, compile=False)
    model.save_pretrained(unfinished)
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    tokenizer.save_pretrained(unfinished)
    encoder, decoder = convert_tokenizer(tokenizer, with_detokenizer=True)
    openvino.save_model(encoder, unfinished / "openvino_tokenizer.xml")
    openvino.save_model(decoder, unfinished / "openvino_detokenizer.xml")
    os.replace(unfinished, done)


if __name__ == "__main__":
    main()
