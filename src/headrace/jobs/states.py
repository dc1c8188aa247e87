"""The life of a job: one table of states and events, and the specification's rules for asking.

        claim            complete
 QUEUED ────▶ INFLIGHT ──────────▶ DELIVERED
   ▲  ▲ retry   │  │  ▲
   │  └─────────┘  │  │ revive (counted as a retry)
   │    expire     ▼  │
   └──────────── DEAD ┘
      requeue     (bury, exhaust when no retry is left, or cancel; cancel also from QUEUED)

An operator's replay leads from DELIVERED and DEAD to QUEUED.

Pure: everything that changes a job asks :func:`follow` first; SQL only carries out the answer. The numbers
are on disk and on the wire (`job-status`), so they never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from .errors import JobsError

__all__ = [
    "TERMINAL",
    "TRANSITIONS",
    "Count",
    "Event",
    "Hold",
    "Rule",
    "State",
    "failure_event",
    "follow",
    "requested_event",
]


class State(IntEnum):
    """The state of a job."""

    QUEUED = 1001
    INFLIGHT = 1002
    DELIVERED = 1003
    DEAD = 1004


class Hold(IntEnum):
    """Why a QUEUED job is not handed out yet."""

    READY = 0
    DELAYED = 1  # until its due time
    BLOCKED = 2  # until the unfinished jobs before it, with the same ordering key, are finished


class Event(StrEnum):
    """The events of a job's life."""

    CLAIM = "claim"
    COMPLETE = "complete"
    BURY = "bury"  # the consumer reports a permanent failure
    RETRY = "retry"  # failed or timed out, with retries left
    EXHAUST = "exhaust"  # failed or timed out, with no retries left
    CANCEL = "cancel"  # an operator wants it no more
    RELEASE = "release"  # returned undone; not counted
    REVIVE = "revive"  # moved directly from the dead letters to INFLIGHT
    REPLAY = "replay"  # an operator wants it handed out again, with all its retries
    REQUEUE = "requeue"  # requeued from the dead letters, with all its retries


class Count(StrEnum):
    """Effect of an event on the retry count."""

    KEEP = "keep"
    ADD = "add"
    RESET = "reset"

    def after(self, retries: int) -> int:
        """The new count."""
        if self is Count.KEEP:
            return retries
        return retries + 1 if self is Count.ADD else 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The state after an event, and the change of the retry count."""

    target: State
    count: Count = Count.KEEP


TRANSITIONS: Final[dict[tuple[int, Event], Rule]] = {
    (State.QUEUED, Event.CLAIM): Rule(State.INFLIGHT),
    (State.INFLIGHT, Event.COMPLETE): Rule(State.DELIVERED),
    (State.INFLIGHT, Event.BURY): Rule(State.DEAD),
    (State.INFLIGHT, Event.RETRY): Rule(State.QUEUED, Count.ADD),
    (State.INFLIGHT, Event.EXHAUST): Rule(State.DEAD),
    (State.INFLIGHT, Event.RELEASE): Rule(State.QUEUED),
    (State.QUEUED, Event.CANCEL): Rule(State.DEAD),
    (State.INFLIGHT, Event.CANCEL): Rule(State.DEAD),
    (State.DEAD, Event.REVIVE): Rule(State.INFLIGHT, Count.ADD),
    (State.DEAD, Event.REQUEUE): Rule(State.QUEUED, Count.RESET),
    (State.DELIVERED, Event.REPLAY): Rule(State.QUEUED, Count.RESET),
    (State.DEAD, Event.REPLAY): Rule(State.QUEUED, Count.RESET),
}

TERMINAL: Final = frozenset({State.DELIVERED, State.DEAD})

_ASKED: Final = {
    (State.QUEUED, State.INFLIGHT): Event.CLAIM,
    (State.DEAD, State.INFLIGHT): Event.REVIVE,
    (State.INFLIGHT, State.DELIVERED): Event.COMPLETE,
    (State.INFLIGHT, State.DEAD): Event.BURY,
}


def follow(state: int, event: Event) -> Rule:
    """The state after ``event`` in ``state``; 400 ``invalid_transition`` if the event is not allowed."""
    rule = TRANSITIONS.get((state, event))
    if rule is None:
        raise _invalid(f"a job that is {State(state).name} cannot {event.value}")
    return rule


def failure_event(retries: int, retries_max: int) -> Event:
    """The event for a failure or an expired lease: RETRY, or EXHAUST after ``retries_max`` retries."""
    return Event.RETRY if retries < retries_max else Event.EXHAUST


def requested_event(state: State, asked: str, incremental_s: int) -> Event | None:
    """The event for a consumer's ``NextState``, by the specification's rules.

    ``None`` means accepted without any change: the job is in that state already. An ``incremental_s`` of 0
    is the same as none. Raises 400 for a timeout where none is allowed, and for any other pair.
    """
    if incremental_s and (asked != State.INFLIGHT.name or state is State.INFLIGHT):
        raise JobsError(
            400,
            "timeout_not_allowed",
            "IncrementalTimeout is only accepted with NextState INFLIGHT on a job that is not INFLIGHT",
            "IncrementalTimeout",
        )
    if asked == state.name:
        return None
    target = State.__members__.get(asked)
    event = None if target is None else _ASKED.get((state, target))
    if event is None:
        raise _invalid(f"a job that is {state.name} cannot become {asked!r}")
    return event


def _invalid(sentence: str) -> JobsError:
    return JobsError(
        400, "invalid_transition", f"invalid transition request: {sentence}", "NextState"
    )
