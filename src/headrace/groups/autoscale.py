"""Looking at an elastic group again and again, and changing its members as an autoscaler decides.

A change is stored only in place of the very record that was looked at. Where somebody else has changed it
meanwhile, nothing is stored and the group is looked at again, so several autoscalers and administrators do
not add up to more than was decided.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..client import KeyExistsError
from ..errors import DisconnectedError, JetStreamApiError, NoRespondersError, RequestTimeoutError
from .errors import GroupConfigurationError
from .lag import measure
from .record.records import ElasticGroup
from .scaling import Autoscaler, Decision, Policy, pool_of
from .server.bucket import Records

if TYPE_CHECKING:
    from ..client import JetStream

__all__ = [
    "UNANSWERED",
    "Autoscaler",
    "Decision",
    "Policy",
    "Step",
    "autoscale",
    "pool_of",
    "rest_after",
]

UNANSWERED: Final = (JetStreamApiError, NoRespondersError, RequestTimeoutError, DisconnectedError)
"""What a server says or does not say that may be different in a moment."""

_REST: Final = 4  # times as long as a look took


class Step(NamedTuple):
    """One look, and what became of it.

    Attributes:
        decision: what to do and why; None if the server did not answer.
        applied: whether the members were changed.
        problem: why not, although they should be.
    """

    decision: Decision | None
    applied: bool = False
    problem: str = ""


async def autoscale(
    js: JetStream,
    stream: str,
    group: str,
    policy: Policy,
    pool: Sequence[str],
    *,
    every: float = 5.0,
    dry_run: bool = False,
    live: Callable[[], Awaitable[Collection[str]]] | None = None,
) -> AsyncGenerator[Step, None]:
    """Keep the number of members right: ``async for step in autoscale(…)``, until it is closed.

    Args:
        policy: the bounds, and when to change.
        pool: who may become a member, see ``pool_of``.
        every: seconds from one look to the next. After a look that took long it rests four times as long.
        dry_run: decide, and change nothing.
        live: asked at each look for the names under which an instance has joined; only these are added.

    Raises:
        GroupNotFoundError, GroupRecordError: the group is gone, or its record cannot be read.
        GroupConfigurationError: the group distributes its partitions by hand, or there can never be as many
            members as the policy's minimum: the names or the partitions are fewer.
        ConnectionClosedError: the connection is closed.
    """
    scaler = Autoscaler(policy, pool)
    records = Records(js, ElasticGroup)
    clock = asyncio.get_running_loop().time
    begun = False
    while True:
        began = clock()
        try:
            record = await records.get(stream, group)
            _check(record)
            if not begun:
                _check_minimum(record, policy, pool)
                begun = True
            look = await measure(js, record, troubles=False)
            decision = scaler.decide(look, None if live is None else await live())
            problem = "dry run" if dry_run else ""
            applied = False
            if decision.action != "hold" and not dry_run:
                applied = await _apply(records, record, decision)
                problem = "" if applied else "somebody else changed the group meanwhile"
        except UNANSWERED as error:
            yield Step(None, problem=str(error))
        else:
            yield Step(decision, applied, problem if decision.action != "hold" else "")
        await asyncio.sleep(rest_after(clock() - began, every))


def rest_after(took: float, every: float) -> float:
    """How long to wait for the next look, in seconds: looking must not become the server's main work."""
    return max(every - took, _REST * took)


def _check(record: ElasticGroup) -> None:
    if record.member_mappings:
        raise GroupConfigurationError(
            f"group {record.name!r} of stream {record.stream!r} has member mappings, so its partitions "
            "are distributed by hand; delete them, and name members instead"
        )


def _check_minimum(record: ElasticGroup, policy: Policy, pool: Sequence[str]) -> None:
    names = len({*record.members, *pool})
    for most, why in (
        (names, f"the pool and the members of the group are {names} names"),
        (record.max_members, f"the group has {record.max_members} partitions"),
    ):
        if policy.minimum > most:
            raise GroupConfigurationError(
                f"minimum is {policy.minimum}; accepted: at most {most}, for {why}"
            )


async def _apply(records: Records[ElasticGroup], record: ElasticGroup, decision: Decision) -> bool:
    """Store the members in place of those that were looked at; False if they are others by now."""
    changed = dataclasses.replace(record, members=tuple(sorted(decision.members)))
    changed.validate()
    try:
        await records.update(changed, record.revision)
    except KeyExistsError:
        return False
    return True
