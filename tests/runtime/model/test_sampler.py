"""The next token: greedy by rule, sampled by seed, and the same whatever else is in the batch."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import (
    InvalidSamplingParameterError,
    NonFiniteLogitsError,
    UnknownSamplingParameterError,
)
from runtime.model.sampler import SamplingParams, SequenceSampler, sample

LOGITS = torch.randn(6, 3000, generator=torch.Generator().manual_seed(3)) * 2


def tokens(params: SamplingParams, count: int, row: int = 0) -> list[int]:
    sampler = SequenceSampler("s", params)
    return [sample(LOGITS[row : row + 1], [sampler])[0] for _ in range(count)]


def test_temperature_zero_takes_the_likeliest_and_the_lowest_id_of_equals() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 0.0, 0.0, 0.0]])
    samplers = [SequenceSampler(name, SamplingParams(seed=9)) for name in "ab"]
    assert sample(logits, samplers) == [1, 0]


def test_the_same_seed_draws_the_same_tokens_and_another_seed_others() -> None:
    assert tokens(SamplingParams(temperature=1.0, seed=5), 20) == tokens(
        SamplingParams(temperature=1.0, seed=5), 20
    )
    assert tokens(SamplingParams(temperature=1.0, seed=5), 20) != tokens(
        SamplingParams(temperature=1.0, seed=6), 20
    )


@given(others=st.lists(st.sampled_from([0.0, 0.7, 1.3]), max_size=5), place=st.integers(0, 5))
def test_a_draw_does_not_depend_on_the_batch(others: list[float], place: int) -> None:
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=11)
    place = min(place, len(others))
    samplers = [SequenceSampler(str(i), SamplingParams(temperature=t, seed=i)) for i, t in enumerate(others)]
    samplers.insert(place, SequenceSampler("ours", params))
    logits = LOGITS[1:2].expand(len(samplers), -1).clone()
    logits[[row for row in range(len(samplers)) if row != place]] += 1.0
    found = [sample(logits, samplers)[place] for _ in range(3)]
    assert found == tokens(params, 3, row=1)


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    sampler = SequenceSampler("s", SamplingParams(temperature=1.0, seed=1))
    counts = [0, 0, 0]
    for _ in range(4000):
        counts[sample(logits, [sampler])[0]] += 1
    # Five standard deviations of a binomial of 4000.
    for count, probability in zip(counts, (0.5, 0.3, 0.2), strict=True):
        assert abs(count - 4000 * probability) < 5 * math.sqrt(4000 * probability * (1 - probability))


def allowed(params: SamplingParams, probabilities: list[float]) -> set[int]:
    logits = torch.tensor([probabilities]).log()
    sampler = SequenceSampler("s", params)
    return {sample(logits, [sampler])[0] for _ in range(400)}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {1}),
        ({"top_p": 0.51}, {1, 3}),
        ({"top_p": 1e-9}, {1}),
        ({"min_p": 0.5}, {1, 3}),
        ({"min_p": 0.25}, {1, 2, 3}),
        ({"top_k": 3, "min_p": 0.5}, {1, 3}),
        ({"top_k": 2, "top_p": 0.6}, {1}),
    ],
    ids=str,
)
def test_filters_keep_the_tokens_they_should(filters: dict[str, Any], expected: set[int]) -> None:
    # Of top_k = 2 the likeliest has 0.5 / 0.8 = 0.625: the nucleus is of what top_k left.
    assert allowed(SamplingParams(temperature=1.0, **filters), [0.05, 0.5, 0.15, 0.3]) == expected


def test_a_nucleus_larger_than_the_first_guess_is_still_whole() -> None:
    flat = torch.zeros(1, 3000)
    sampler = SequenceSampler("s", SamplingParams(temperature=1.0, top_p=0.9))
    drawn = {sample(flat, [sampler])[0] for _ in range(4000)}
    # 2,700 tokens of 3,000 are in; 4,000 draws see about 77 % of them, far more than the guess of 1,024.
    assert 1024 < len(drawn) <= 2701


def test_low_temperature_approaches_greedy() -> None:
    assert set(tokens(SamplingParams(temperature=0.01), 50)) == {int(LOGITS[0].argmax())}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_name_their_sequences_and_draw_nothing(bad: float) -> None:
    params = SamplingParams(temperature=1.0, seed=4)
    samplers = [SequenceSampler(name, params) for name in ("a", "b", "c")]
    logits = LOGITS[:3].clone()
    logits[[0, 2], 7] = bad
    with pytest.raises(NonFiniteLogitsError, match="a, c") as caught:
        sample(logits, samplers)
    assert caught.value.sequence_ids == ("a", "c")
    assert sample(logits[1:2], samplers[1:2]) == tokens(params, 1, row=1)


def test_no_rows_give_no_tokens_and_a_mismatch_is_an_error() -> None:
    assert sample(torch.empty(0, 10), []) == []
    with pytest.raises(ValueError, match="1 rows of logits for 0 sequences"):
        sample(LOGITS[:1], [])


def test_a_mapping_is_parsed_and_an_unknown_key_named() -> None:
    params = SamplingParams.parse({"temperature": 1, "top_k": 5, "seed": 3})
    assert params == SamplingParams(temperature=1, top_k=5, seed=3)
    with pytest.raises(UnknownSamplingParameterError, match="'temprature'; known: temperature, top_k"):
        SamplingParams.parse({"temprature": 1.0})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.0),
        ("seed", -1),
        ("seed", True),
    ],
)
def test_a_value_outside_its_range_is_named(key: str, value: Any) -> None:
    with pytest.raises(InvalidSamplingParameterError, match=key):
        SamplingParams.parse({key: value})
