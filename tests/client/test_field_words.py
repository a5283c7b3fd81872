"""A wrong field is named by the option that a person typed."""

import pytest

from client.field_words import field_in_words


@pytest.mark.parametrize(
    ("pointer", "told"),
    [
        ("/engine/kv_pool_tokens", "--engine kv_pool_tokens"),
        ("/arms/1/engine/kv_pool_tokens", "--arm, engine option kv_pool_tokens"),
        ("/repetitions", "--pairs"),
        ("/queue_deadline_s", "--queue-deadline-s"),
        ("/selectors/0/device_model", "--device-model"),
        ("/gate/floor_percent/wall_s", "--floor wall_s"),
        ("/limits/wall_s", "/limits/wall_s"),
        ("", "the request"),
    ],
)
def test_a_field_is_named_by_its_option_where_there_is_one(pointer: str, told: str) -> None:
    assert field_in_words(pointer) == told
