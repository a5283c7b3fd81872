"""A whole attempt carried out by the fake agent: claimed, run as the story tells it, uploaded, finished."""

from dataclasses import dataclass
from typing import Any

from contract.agent_api import Lease
from contract.events import Stream
from contract.rest import GateRequest, RunView
from measures.verdict.metric_verdicts import ComparisonPlan
from tests.fakes.attempt_story import AttemptStory
from tests.fakes.farm import FakeAgent, Farm, host_report
from tests.fakes.paired_attempt import Change, nothing, paired_story

WORKLOAD = {"name": "single"}


@dataclass
class Lab:
    """A farm with one agent and one ready host."""

    farm: Farm
    agent: FakeAgent

    @classmethod
    async def of(cls, farm: Farm) -> "Lab":
        """Enrolled and said hello."""
        agent = await farm.agent()
        await agent.hello(host_report())
        return cls(farm, agent)

    async def submit(self, **changed: Any) -> RunView:
        """A run that the farm takes."""
        async with self.farm.client("submitter") as client:
            response = await client.post("/v1/runs", json=run_request(**changed))
        assert response.status_code == 201, response.text
        return RunView.model_validate_json(response.content)

    async def claim(self) -> Lease:
        """The lease that must be there; the device has come back from the attempt before."""
        await self.agent.hello(host_report())
        lease = await self.agent.claim("host-1")
        assert lease is not None
        return lease

    async def carry_out(self, lease: Lease, change: Change = nothing) -> AttemptStory:
        """Run every trial of the lease as the paired story tells it, and succeed."""
        story = told(lease, change)
        await self.upload(lease, story)
        await self.agent.finish(lease, {stream.value: len(story.events[stream]) for stream in Stream})
        return story

    async def upload(self, lease: Lease, story: AttemptStory) -> None:
        """Report the phase and send all streams."""
        await self.agent.renew(lease, "running")
        for stream in Stream:
            await self.agent.upload(lease, stream, story.events[stream])

    async def get(self, path: str, **params: Any) -> Any:
        """The JSON at a path, as a viewer sees it; it must be there."""
        async with self.farm.client("viewer") as client:
            response = await client.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()


def run_request(**changed: Any) -> dict[str, Any]:
    """A request that one host with the model `tiny` can serve: six pairs, so that a verdict is possible."""
    usual: dict[str, Any] = {"workload": WORKLOAD, "model": "tiny", "repetitions": 6}
    return usual | changed


def told(lease: Lease, change: Change = nothing) -> AttemptStory:
    """The story of the lease's own trials."""
    spec = lease.spec
    plan = ComparisonPlan(spec.arms, "serial", "paged", spec.trials, GateRequest(), 0)
    return paired_story(plan, change, AttemptStory(attempt_id=lease.attempt_id))
