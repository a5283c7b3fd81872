"""The base of every contract model: frozen, no unknown field, no silent conversion of strings."""

from pydantic import BaseModel, ConfigDict


class ContractModel(BaseModel):
    """Immutable; an unknown field is an error, so that a typing mistake never travels."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="null", use_attribute_docstrings=True
    )
