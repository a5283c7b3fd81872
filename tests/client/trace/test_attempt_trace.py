"""The trace of an attempt that the runtime really ran: two arms, tools, an agent that fails."""

import tracemalloc
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch

from client.api import EVENTS_PER_PAGE, DynofarmClient
from client.errors import InfrastructureError, UsageError
from client.trace.attempt_trace import WrittenTrace, write_events, write_trace
from contract.events import Event, Stream, parse_event
from contract.workload import AgentPlan, Call, Segment, SegmentPart
from runtime.measured.cli import main
from runtime.measured.emit import stream_of
from tests.client.conftest import AddRun
from tests.client.trace.read_trace import ReadTrack, read_trace
from tests.fakes.attempt_specs import attempt_folder, attempt_spec, shared_prefix, workload
from tests.fakes.attempt_story import MS, AttemptStory
from tests.fakes.tiny_model import POISON, save_tiny_model

AGENTS = 4
Streams = dict[Stream, list[Event]]


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    """Events of four agents with three calls each, and one with broken logits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("trace")
    graph = shared_prefix(agents=AGENTS, output_tokens=24)
    call = Call(parts=[SegmentPart(segment_id="bad")], max_output_tokens=4)
    graph = workload(
        [*graph.agents, AgentPlan(agent="lost", calls=[call], retries=1)],
        [*graph.segments, Segment(segment_id="bad", text=f"It begins well {POISON}")],
    )
    folder = attempt_folder(root, attempt_spec(graph, ["serial", "paged"]))
    arguments = ["--attempt-dir", folder, "--model-path", save_tiny_model(root / "m")]
    main([*(str(each) for each in arguments), "--socket", str(tmp_path_factory.mktemp("s") / "e")])
    found: Streams = {stream: [] for stream in Stream}
    for line in (folder / "events.jsonl").read_bytes().splitlines():
        event = parse_event(line)
        found[stream_of(event)].append(event)
    yield found
    torch.set_num_threads(threads)


@pytest.fixture
def written(client: DynofarmClient, add_run: AddRun, streams: Streams, tmp_path: Path) -> WrittenTrace:
    run = add_run(polls=0)
    run.tell(streams)
    return write_trace(client, run.attempt_id, tmp_path / "a.pftrace")


@pytest.fixture
def tracks(written: WrittenTrace) -> dict[tuple[str, ...], ReadTrack]:
    """By their names below the attempt."""
    return {path[1:]: track for path, track in read_trace(written.path.read_bytes()).items()}


def of(streams: Streams, kind: str, trial: int) -> list[Event]:
    events = (event for stream in streams.values() for event in stream if event.type == kind)
    return [event for event in events if event.trial == trial]


def arm_of(trial: int) -> str:
    return f"arm {('serial', 'paged')[trial - 1]}"


@pytest.mark.parametrize("trial", [1, 2])
def test_every_agent_has_a_track_with_its_calls_and_its_tools(
    tracks: dict[tuple[str, ...], ReadTrack], streams: Streams, trial: int
) -> None:
    for number in range(AGENTS):
        name = f"agent{number}"
        slices = tracks[arm_of(trial), "agents", f"agent {name}"].slices
        calls = [each for each in slices if each.name.startswith("call")]
        arrived = [event for event in of(streams, "call_arrived", trial) if event.agent == name]
        finished = [event for event in of(streams, "call_finished", trial) if event.agent == name]
        assert [each.begin_ns for each in calls] == [event.t_mono_ns for event in arrived]
        assert [each.end_ns for each in calls] == [event.t_mono_ns for event in finished]
        assert [each.details["output_tokens"] for each in calls] == [24, 24, 24]
        tools = [each for each in slices if each.name == "tool wait: probe"]
        ends = [("tool_wait_started", "begin_ns"), ("tool_wait_finished", "end_ns")]
        for kind, end in ends:
            waits = [event.t_mono_ns for event in of(streams, kind, trial) if event.agent == name]
            assert [getattr(each, end) for each in tools] == waits
        assert [each.depth for each in tools] == [0, 0]


@pytest.mark.parametrize("trial", [1, 2])
def test_the_states_of_a_call_fill_it_without_gap_and_decode_begins_with_the_first_token(
    tracks: dict[tuple[str, ...], ReadTrack], streams: Streams, trial: int
) -> None:
    first_tokens = {
        (event.agent, event.t_mono_ns) for event in of(streams, "token_emitted", trial) if event.index == 0
    }
    for number in range(AGENTS):
        track = tracks[arm_of(trial), "agents", f"agent agent{number}"]
        for call in (each for each in track.slices if each.name.startswith("call")):
            states = [s for s in track.slices if s.depth == 1 and call.begin_ns <= s.begin_ns < call.end_ns]
            assert [s.name for s in states][:3] == ["queued", "prefill", "decode"]
            assert states[0].begin_ns == call.begin_ns
            assert states[-1].end_ns == call.end_ns
            assert all(a.end_ns == b.begin_ns for a, b in pairwise(states))
            assert (f"agent{number}", states[2].begin_ns) in first_tokens


def test_a_preempted_call_waits_computes_again_and_decodes(tmp_path: Path) -> None:
    story = AttemptStory()
    who = {"trial": 1, "agent": "a1", "call": 0}
    story.control("trial_started", 0, trial=1, arm="paged", pair=None, warmup=False)
    story.control("call_arrived", 1, **who, prompt_tokens=9)
    story.control("call_admitted", 2, **who, cached_tokens=0)
    story.control("token_emitted", 3, **who, index=0, token_id=5)
    story.control("sequence_preempted", 4, **who, dropped_tokens=9)
    story.control("sequence_resumed", 6, **who, recomputed_tokens=9)
    story.control("token_emitted", 7, **who, index=1, token_id=5)
    story.control("tool_wait_started", 8, **who, tool="probe")
    written = write_events(story.events[Stream.CONTROL], story.attempt_id, tmp_path / "file")
    root = f"attempt {story.attempt_id}"
    track = read_trace(written.path.read_bytes())[root, "arm paged", "agents", "agent a1"]
    start_ns = story.clock_ns
    assert [(each.name, (each.begin_ns - start_ns) // MS, each.depth) for each in track.slices] == [
        ("call 0", 1, 0),
        ("queued", 1, 1),
        ("prefill", 2, 1),
        ("decode", 3, 1),
        ("preempted", 4, 1),
        ("prefill", 6, 1),
        ("decode", 7, 1),
        ("tool wait: probe", 8, 0),
    ]
    assert track.slices[4].details == {"dropped_tokens": 9}
    assert track.slices[5].details == {"recomputed_tokens": 9}


@pytest.mark.parametrize("trial", [1, 2])
def test_every_batch_is_a_slice_with_its_members_and_its_duration(
    tracks: dict[tuple[str, ...], ReadTrack], streams: Streams, trial: int
) -> None:
    events = of(streams, "batch_executed", trial)
    slices = tracks[arm_of(trial), "batches"].slices
    assert [each.details["step"] for each in slices] == [event.step for event in events]
    for drawn, event in zip(slices, events, strict=True):
        assert (drawn.begin_ns, drawn.end_ns) == (event.t_mono_ns - event.duration_ns, event.t_mono_ns)
        assert len(drawn.details.get("decode", [])) == len(event.decode)
        for text, member in zip(drawn.details.get("prefill", []), event.prefill, strict=True):
            assert text.startswith(f"{member.agent}, call {member.call}: {member.tokens} token")
    together = max(len(each.details.get(kind, [])) for each in slices for kind in ("decode", "prefill"))
    assert together == (1 if trial == 1 else AGENTS)


def test_blocks_and_prefix_hits_and_counters_are_those_of_the_events(
    tracks: dict[tuple[str, ...], ReadTrack], streams: Streams
) -> None:
    kinds = ("blocks_allocated", "blocks_shared", "blocks_released", "block_copied", "block_evicted")
    blocks = sum(len(of(streams, kind, 2)) for kind in kinds)
    assert len(tracks["arm paged", "block events"].instants) == blocks > 0
    allocated = [event.blocks for event in of(streams, "blocks_allocated", 2)]
    instants = tracks["arm paged", "block events"].instants
    assert [mark[2]["blocks"] for mark in instants if mark[1].endswith("allocated")] == allocated
    hits = [
        mark
        for number in range(AGENTS)
        for mark in tracks["arm paged", "agents", f"agent agent{number}"].instants
        if mark[1].startswith("prefix hit")
    ]
    assert len(hits) == len(of(streams, "prefix_hit", 2)) > 0
    sampled = of(streams, "kv_sampled", 2)
    in_use = tracks["arm paged", "KV pool", "blocks in use"].values
    assert in_use == [*((event.t_mono_ns, event.blocks_used) for event in sampled), (in_use[-1][0], 0)]


def test_memory_is_one_counter_over_the_whole_attempt(
    tracks: dict[tuple[str, ...], ReadTrack], streams: Streams
) -> None:
    sampled = [event for event in streams[Stream.SAMPLES] if event.type == "memory_sampled"]
    footprint = [(event.t_mono_ns, event.footprint_bytes) for event in sampled]
    assert tracks["footprint",].values == footprint
    assert ("headroom",) in tracks or all(event.limit_bytes is None for event in sampled)


def test_an_agent_that_failed_says_why(tracks: dict[tuple[str, ...], ReadTrack]) -> None:
    track = tracks["arm paged", "agents", "agent lost"]
    said = [name for _, name, _ in track.instants if not name.startswith("prefix hit")]
    failed = "failed: non_finite_logits"
    assert said == [failed, "retry 1", failed, "agent failed"]
    assert "not finite" in track.instants[0][2]["detail"]
    assert [each.details["failed"] for each in track.slices if each.depth == 0] == ["non_finite_logits"] * 2


def test_the_summary_counts_what_is_in_the_file(written: WrittenTrace, streams: Streams) -> None:
    counted = written.timeline.counted
    assert counted.events == sum(len(streams[stream]) for stream in Stream)
    assert counted.events > EVENTS_PER_PAGE, "more than one page"
    assert (counted.trials, counted.calls, counted.is_complete) == (2, 2 * (AGENTS * 3 + 2), True)
    assert written.times_moved == 0
    assert written.size_bytes == written.path.stat().st_size


@pytest.mark.parametrize("share", [0.05, 0.3, 0.62, 0.97])
def test_a_trace_of_an_attempt_that_was_cut_short_is_sound_too(
    streams: Streams, tmp_path: Path, share: float
) -> None:
    ordered = sorted(
        (event for events in streams.values() for event in events), key=lambda event: event.t_mono_ns
    )
    cut = write_events(ordered[: int(len(ordered) * share)], "att_x", tmp_path / "cut")
    read_trace(cut.path.read_bytes())
    assert not cut.timeline.counted.is_complete


def test_an_attempt_without_events_gets_no_file_and_one_that_stood_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("before")
    with pytest.raises(InfrastructureError, match="no trial of att_x"):
        write_events([], "att_x", path)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert path.read_text() == "before"


def test_an_attempt_whose_runtime_never_loaded_gets_no_file(streams: Streams, tmp_path: Path) -> None:
    opened = next(event for event in streams[Stream.CONTROL] if event.type == "stream_opened")
    with pytest.raises(InfrastructureError, match="nothing to draw"):
        write_events([opened], "att_x", tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_events([], "att_x", tmp_path / "nowhere" / "file")


def test_an_event_of_a_trial_that_never_started_is_a_contradiction(streams: Streams, tmp_path: Path) -> None:
    token = of(streams, "token_emitted", 1)[0]
    with pytest.raises(InfrastructureError, match="of trial 1, which is not among"):
        write_events([token], "att_x", tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_long_attempt_needs_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    story = AttemptStory()
    story.control("trial_started", 0, trial=1, arm="paged", pair=None, warmup=False)
    member = {"agent": "a1", "call": 0, "tokens": 1}
    fields = {"trial": 1, "step": 1, "decode": [member], "prefill": [], "duration_ns": 1000}
    step = story.add(Stream.LOG, "batch_executed", 1, **fields)

    def peak_bytes(steps: int) -> int:
        moments = (step.model_copy(update={"t_mono_ns": step.t_mono_ns + 2000 * n}) for n in range(steps))
        tracemalloc.start()
        written = write_events(chain(story.events[Stream.CONTROL], moments), "att_x", tmp_path / "file")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert written.size_bytes > 100 * steps
        return peak

    peak_bytes(10)
    short = peak_bytes(100)
    assert peak_bytes(10_000) < short + 100_000
