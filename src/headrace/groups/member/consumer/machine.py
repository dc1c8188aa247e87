"""What to do about one consumer of a member, event by event. Pure.

``after(state, event)`` is the next state; the phase of a state is what its shell, ``member_consumer``, does
at the moment. Every wish from outside (``Wanted``, ``End``) may come in every phase.

::

    IDLE ──Wanted──▶ CREATING ──Created──▶ CONSUMING ──Wanted another──▶ RELEASING ──▶ CREATING, or IDLE
                      │  ▲                  │ Gone ──▶ READING the record ──▶ CREATING
           Overlaps,  ▼  │ Elapsed          │ Lost ──▶ PAUSED (let another one be pinned) ──▶ CREATING
           Failed   PAUSED                  └ End ──▶ RELEASING ──▶ OVER

    CREATING ──Differs──▶ READING ──Read, still wanted──▶ DELETING ──▶ CREATING        (elastic)
                                                          InUse ──▶ PAUSED
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from ....retries import pause_s
from ..config import Plan

TELL_AFTER_S: Final = 1.0
"""A planned change is over by then."""

TELL_EVERY_S: Final = 5.0


class WaitForPinned:
    """One wait after the other, with one consumer name.

    Args:
        time: the loop's clock.
        lease_s: how long a former owner may be at work after it lost its pin.
        pin_s: how long a pin lasts without a pull.
    """

    __slots__ = ("_lease_s", "_pin_s", "_since", "_tell_at", "_time", "_unpinned_since")

    def __init__(self, time: Callable[[], float], *, lease_s: float, pin_s: float) -> None:
        self._time = time
        self._lease_s = lease_s
        self._pin_s = pin_s
        self._since: float | None = None
        self._unpinned_since: float | None = None
        self._tell_at: float | None = None

    def is_over(self, *, is_pinned: bool) -> bool:
        """The consumer was found in use: whether it may be deleted nevertheless."""
        now = self._time()
        if self._since is None:
            self._since = now
        if is_pinned:
            self._unpinned_since = None
        elif self._unpinned_since is None:
            self._unpinned_since = now
        if now - self._since >= 2 * self._pin_s:
            return True
        return self._unpinned_since is not None and now - self._unpinned_since >= self._lease_s

    def is_to_be_told(self) -> bool:
        """Called at each look, before the next one: whether it is time to say that it waits."""
        now = self._time()
        if self._tell_at is None:
            self._tell_at = now + TELL_AFTER_S
        if now < self._tell_at:
            return False
        self._tell_at = now + TELL_EVERY_S
        return True

    def end(self) -> None:
        """It no longer waits."""
        self._since = self._unpinned_since = self._tell_at = None


RETRY_FIRST_S: Final = 0.05  # doubling …
RETRY_MAX_S: Final = 1.0  # … up to here


class Phase(Enum):
    """What the shell does."""

    IDLE = auto()
    CREATING = auto()
    CONSUMING = auto()
    RELEASING = auto()
    PAUSED = auto()
    READING = auto()
    DELETING = auto()
    OVER = auto()


class Pause(Enum):
    """Why it waits before it creates."""

    OVERLAP = "another one still reads one of the partitions; growing from 50 ms to 1 s"
    TROUBLE = "the server could not be reached, or the consumer vanished again; growing as well"
    TICK = "the server refused for a reason that time may cure; ack_wait and half a second"
    STANDBY = "the pinned instance deletes the consumer first; 400 to 499 ms"
    STEPPED_DOWN = "another instance shall be pinned; 400 to 499 ms"


class Release(Enum):
    """How a consumer is let go of."""

    DELETE = "the partitions change: drain, confirm what was acknowledged, delete, if we are pinned"
    HAND_OVER = "another instance goes on: drain, send back what was not begun, let go of the pin"
    ABANDON = "the consumer is gone or will be: begin nothing more"
    REMOVE = "the group is over: begin nothing more, and delete the consumer, pinned or not"


# Events


@dataclass(frozen=True, slots=True)
class Wanted:
    """The record was read or has changed: this is to be consumed, or nothing.

    Attributes:
        partitions: how many the group has.
    """

    plan: Plan | None
    partitions: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class End:
    """The membership is over, or this part of it."""

    release: Release = Release.HAND_OVER


@dataclass(frozen=True, slots=True)
class Created:
    """The consumer is there, as planned."""


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Another consumer reads one of the partitions (10100)."""


@dataclass(frozen=True, slots=True)
class Differs:
    """A consumer of that name exists with another configuration (10148)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be done: ``refused`` by the server, or not answered."""

    refused: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """The record as it is now; None if it could not be read."""

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The consumer that differed is deleted, or was gone."""


@dataclass(frozen=True, slots=True)
class InUse:
    """The consumer that differs has a pinned client, who may still be draining it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The consumer disappeared. ``settled``: it had been pulled from for a while."""

    settled: bool = True


@dataclass(frozen=True, slots=True)
class Lost:
    """The pin was taken from us, or may have been. ``forgotten``: the link was lost meanwhile, so that the
    server may have been restarted, and nobody else need be pinned first."""

    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The pause is over."""


@dataclass(frozen=True, slots=True)
class Released:
    """We hold nothing any more. ``deleted``: the consumer is gone, so the next one can be made at once."""

    deleted: bool


Event = (
    Wanted
    | End
    | Created
    | Overlaps
    | Differs
    | Failed
    | Read
    | Deleted
    | InUse
    | Gone
    | Lost
    | Elapsed
    | Released
)


@dataclass(frozen=True, slots=True)
class State:
    """What is known of one consumer.

    Attributes:
        wanted: what the record says is to be consumed, or None.
        made: what we asked the server for last, and may hold.
        pause, failures: why it is paused, and how often it failed in a row.
        release: how it is being let go of, or will be.
        partitions: how many the group has.
        ending: it ends after the release.
        met_other: a consumer of another configuration was met: it is deleted if the record is still the
            one that we know.
    """

    phase: Phase = Phase.IDLE
    wanted: Plan | None = None
    partitions: int = sys.maxsize
    made: Plan | None = None
    pause: Pause = Pause.TICK
    failures: int = 0
    release: Release = Release.HAND_OVER
    ending: bool = False
    met_other: bool = False


def retry_s(failures: int) -> float:
    """The pause after this number of failures in a row."""
    return pause_s(failures, RETRY_FIRST_S, RETRY_MAX_S)


def after(state: State, event: Event) -> State:
    """The state after ``event``. What does not concern a phase leaves it as it is."""
    if state.phase is Phase.OVER:
        return state
    if isinstance(event, Wanted):
        return _wanted(replace(state, partitions=event.partitions), event.plan)
    if isinstance(event, End):
        return _end(state, event.release)
    return _ANSWERS[state.phase](state, event)


def _wanted(state: State, plan: Plan | None) -> State:
    if state.ending:
        return state
    state = replace(state, wanted=plan)
    if state.phase is Phase.IDLE:
        return _begin(state)
    if state.phase is Phase.CONSUMING and plan != state.made:
        return replace(state, phase=Phase.RELEASING, release=_let_go(state, plan))
    if state.phase is Phase.PAUSED and (plan is None or state.pause in _MAY_BE_CUT_SHORT):
        return _begin(state)
    return state


_MAY_BE_CUT_SHORT: Final = (Pause.OVERLAP, Pause.TICK)


def _let_go(state: State, plan: Plan | None) -> Release:
    """A partition's own consumer stays for its next owner, unless the group has that partition no more; a
    member's goes."""
    made = state.made
    stays = made is not None and made.is_shared and made.partitions[-1] < state.partitions
    return Release.HAND_OVER if stays and plan is None else Release.DELETE


def _end(state: State, release: Release) -> State:
    if state.ending and state.release is not Release.HAND_OVER:
        return state
    state = replace(state, ending=True, wanted=None, release=release)
    if state.phase is Phase.CONSUMING:
        return replace(state, phase=Phase.RELEASING)
    if state.phase in (Phase.IDLE, Phase.PAUSED):
        return _over(state)
    return state  # under way; it ends with the answer


def _over(state: State) -> State:
    if state.release is Release.REMOVE and state.phase is not Phase.RELEASING and state.made:
        return replace(state, phase=Phase.RELEASING)
    return replace(state, phase=Phase.OVER)


def _begin(state: State) -> State:
    """Create what is wanted, or rest."""
    if state.ending:
        return _over(state)
    if state.wanted is None:
        return replace(state, phase=Phase.IDLE, failures=0)
    return replace(state, phase=Phase.CREATING, made=state.wanted)


def _pause(state: State, pause: Pause) -> State:
    failed = pause in (Pause.OVERLAP, Pause.TROUBLE, Pause.TICK)
    failures = state.failures + 1 if failed else 0
    if state.ending or state.wanted is None:
        return _begin(state)
    return replace(state, phase=Phase.PAUSED, pause=pause, failures=failures)


def _creating(state: State, event: Event) -> State:
    if isinstance(event, Created):
        if state.ending or state.wanted != state.made:
            return replace(
                state,
                phase=Phase.RELEASING,
                release=state.release if state.ending else _let_go(state, state.wanted),
                met_other=False,
            )
        return replace(state, phase=Phase.CONSUMING, met_other=False)
    if state.wanted != state.made or state.ending:
        return _begin(state)  # whatever came of it, it is not wanted any more
    if isinstance(event, Overlaps):
        return _pause(state, Pause.OVERLAP)
    if isinstance(event, Differs):
        return replace(state, phase=Phase.READING, met_other=True)
    if isinstance(event, Failed):
        return _pause(state, Pause.TICK if event.refused else Pause.TROUBLE)
    return state


def _consuming(state: State, event: Event) -> State:
    if isinstance(event, Gone):
        failures = 0 if event.settled else state.failures
        return replace(state, phase=Phase.READING, failures=failures, met_other=False)
    if isinstance(event, Lost):
        return _begin(state) if event.forgotten else _pause(state, Pause.STEPPED_DOWN)
    return state


def _releasing(state: State, event: Event) -> State:
    if not isinstance(event, Released):
        return state
    if not state.ending and state.release is Release.DELETE and not event.deleted:
        return _pause(state, Pause.STANDBY)
    return _begin(replace(state, failures=0))


def _reading(state: State, event: Event) -> State:
    if isinstance(event, Failed):
        return _pause(state, Pause.TROUBLE)
    if not isinstance(event, Read):
        return state
    if not state.ending:
        state = replace(state, wanted=event.plan)
    if state.met_other and state.wanted == state.made and not state.ending:
        return replace(state, phase=Phase.DELETING)
    if state.failures and state.wanted is not None:
        return _pause(state, Pause.TROUBLE)
    return _begin(replace(state, failures=state.failures + 1))


def _deleting(state: State, event: Event) -> State:
    if isinstance(event, Deleted):
        state = replace(state, met_other=False)
        if state.failures:
            return _pause(state, Pause.TROUBLE)  # two instances delete each other's
        return _begin(replace(state, failures=1))
    if isinstance(event, InUse):
        return _pause(state, Pause.OVERLAP)
    if isinstance(event, Failed):
        return _pause(state, Pause.TROUBLE)
    return state


def _paused(state: State, event: Event) -> State:
    return _begin(state) if isinstance(event, Elapsed) else state


def _idle(state: State, event: Event) -> State:
    return state


_ANSWERS: Final = {
    Phase.IDLE: _idle,
    Phase.CREATING: _creating,
    Phase.CONSUMING: _consuming,
    Phase.RELEASING: _releasing,
    Phase.PAUSED: _paused,
    Phase.READING: _reading,
    Phase.DELETING: _deleting,
}
