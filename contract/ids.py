"""Identifiers: a prefix that names the kind, then a ULID (sorted by time of creation)."""

from typing import Annotated, NewType

from pydantic import StringConstraints

ULID_PATTERN = r"[0-9A-HJKMNP-TV-Z]{26}"


def _prefixed(prefix: str) -> StringConstraints:
    return StringConstraints(pattern=rf"^{prefix}_{ULID_PATTERN}$")


RunId = Annotated[str, _prefixed("run")]
JobId = Annotated[str, _prefixed("job")]
AttemptId = Annotated[str, _prefixed("att")]
LeaseId = Annotated[str, _prefixed("lea")]
DeviceAgentId = Annotated[str, _prefixed("agt")]
ClaimId = Annotated[str, _prefixed("clm")]
# A device names itself: an iPhone by its UDID, a host by a stable name of its own.
DeviceId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
# An agent, arm, workload or metric is named by people.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

BlockId = NewType("BlockId", int)
TokenId = NewType("TokenId", int)
