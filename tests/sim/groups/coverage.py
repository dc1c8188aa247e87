"""Proof that seeds went where they were meant to go: events of the world, and entries into the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.client.net.waiting import Waiter
from headrace.groups.member.consumer import machine
from headrace.groups.member.consumer.consuming import Consuming
from headrace.groups.member.consumer.member_consumer import MemberConsumer
from headrace.groups.member.handlers.handling import Handling
from headrace.groups.member.handlers.on_loop import ConcurrentHandlers, InTurn
from headrace.groups.member.handlers.on_threads import OnThreads
from headrace.groups.member.lease import Lease
from headrace.groups.member.pinned import Pinned, Renewal
from sim.whole.coverage import Path

__all__ = ["EVENTS", "PATHS"]

EVENTS = (
    "ack_sync: NotOwnedError",
    "asleep",
    "broker hangs",
    "broker killed",
    "broker lost power",
    "consumer deleted",
    "crash replaced",
    "cut, told: both",
    "cut, told: client",
    "cut, told: nobody",
    "cut, told: server",
    "ended: HandlerFailedError",
    "frozen",
    "frozen past the lease",
    "handler failed",
    "key changed hands",
    "left",
    "loop blocked",
    "loop blocked for long",
    "machine lost",
    "mapped",
    "mappings deleted",
    "member added",
    "member dropped",
    "overlap with a cause",
    "planned change",
    "process killed",
    "publish again",
    "run",
    "run again",
    "slow handler",
    "stalled",
    "step down",
)

Taken = Callable[[tuple[Any, ...], Any], bool]


def _was(event: type) -> Taken:
    """The member's consumer was told of such an event."""
    return lambda args, result: isinstance(args[1], event)


def _lost_with(kind: type) -> Taken:
    """The pin or the consumer was lost while messages waited to be handled."""

    def taken(args: tuple[Any, ...], result: Any) -> bool:
        consuming, event = args
        work = consuming._work
        return isinstance(event, kind) and work is not None and bool(work.waiting())

    return taken


def _stopped_running(args: tuple[Any, ...], result: Any) -> bool:
    return bool(args[0].running())


def _without_info(args: tuple[Any, ...], result: Any) -> bool:
    """As whoever takes over has asked for it before."""
    return len(args) == 2


def _went_on(args: tuple[Any, ...], result: Any) -> bool:
    return bool(result)


def _refused(args: tuple[Any, ...], result: Any) -> bool:
    return not result


PATHS = {
    "consumer created": Path(MemberConsumer, "tell", _was(machine.Created)),
    "partition still another's (10100)": Path(MemberConsumer, "tell", _was(machine.Overlaps)),
    "consumer of another plan (10148)": Path(MemberConsumer, "tell", _was(machine.Differs)),
    "consumer of another plan deleted": Path(MemberConsumer, "tell", _was(machine.Deleted)),
    "consumer of another plan in use": Path(MemberConsumer, "tell", _was(machine.InUse)),
    "consumer gone, made again": Path(MemberConsumer, "tell", _was(machine.Gone)),
    "consumer let go of": Path(MemberConsumer, "tell", _was(machine.Released)),
    "server out of reach": Path(MemberConsumer, "tell", _was(machine.Failed)),
    "pin lost": Path(MemberConsumer, "tell", _was(machine.Lost)),
    "pin lost with a full buffer": Path(Consuming, "_finish", _lost_with(machine.Lost)),
    "consumer lost with a full buffer": Path(Consuming, "_finish", _lost_with(machine.Gone)),
    "pin handed over": Path(Pinned, "let_go"),
    "lease renewed": Path(Pinned, "renew"),
    "in progress said": Path(Consuming, "_say_in_progress"),
    "former owner's messages waited for": Path(Consuming, "_has_come", _refused),
    "lost messages waited for": Path(Consuming, "_gather", _without_info),
    "renewal answered too late": Path(Lease, "answered", _refused),
    "standby left": Path(Consuming, "_receive_last"),
    "consumer given up after a drain": Path(Consuming, "_give_up"),
    "removal of what was acknowledged awaited": Path(Consuming, "_until_removed"),
    "handler running when told to stop": Path(InTurn, "stop", _stopped_running),
    "handlers abreast running when told to stop": Path(
        ConcurrentHandlers, "stop", _stopped_running
    ),
    "handler on a thread running when told to stop": Path(OnThreads, "stop", _stopped_running),
    "late renewal awaited before a handler": Path(Renewal, "wait"),
    "reader run where frames are received": Path(Waiter, "wake_now", _went_on),
    "reader run in the next turn": Path(Waiter, "wake"),
    "handler retried": Path(Handling, "_waits"),
}
