"""Models for these tests: tiny random ones made once per session, and the real one where it is installed."""

from pathlib import Path

import pytest
from transformers import PreTrainedModel
from transformers.utils import logging

from runtime.model.llama import LlamaModel
from tests.fakes.demo_model import demo_model
from tests.runtime.model import tiny_models

logging.disable_progress_bar()


@pytest.fixture(scope="session")
def real_gguf() -> Path:
    return demo_model()


@pytest.fixture(scope="session")
def tiny_hf() -> PreTrainedModel:
    return tiny_models.random_model("llama")


@pytest.fixture(scope="session")
def tiny_folder(tiny_hf: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.save(tiny_hf, tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LlamaModel:
    return tiny_models.ours(tiny_folder)
