"""Facts of one trial, from the times of its tokens, where no event file is needed."""

from collections.abc import Mapping, Sequence

from measures.facts.attempt import TrialFacts
from measures.facts.reader import attempt_facts
from tests.fakes.attempt_story import AttemptStory, CallStory, TrialStory


def trial_facts(token_ms: Mapping[tuple[str, int], Sequence[float]], started_ns: int = 0) -> TrialFacts:
    """A completed paged trial. token_ms: agent and call to when its tokens came, from the trial's start."""
    story = AttemptStory(clock_ns=started_ns)
    calls = [CallStory(agent, call, token_ms=tokens) for (agent, call), tokens in token_ms.items()]
    story.trial(TrialStory(1, "paged", 1, calls=calls))
    (trial,) = attempt_facts(story.events).trials
    return trial
