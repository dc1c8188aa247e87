"""The state of a session, and what changes it. A table, so that every case is written down and tested.

The states are a product: whether there is a link, and how far a drain has come. A drain goes on over a lost
link. Closed is the end: nothing changes it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class State(Enum):
    """Of a session. ``…_RESTORING``: the link is lost, and another one is being looked for."""

    CONNECTING = auto()
    """There was no link yet."""
    OPEN = auto()
    OPEN_RESTORING = auto()
    DRAINING = auto()
    """Nothing new is subscribed; what was received may still be answered."""
    DRAINING_RESTORING = auto()
    DRAINED = auto()
    """Nothing more is published; what is queued is being sent."""
    DRAINED_RESTORING = auto()
    CLOSED = auto()

    @property
    def may_publish(self) -> bool:
        """Whether a drain allows it; a closed session refuses for another reason."""
        return self not in _DRAINED

    @property
    def may_subscribe(self) -> bool:
        """Whether a drain allows it; a closed session refuses for another reason."""
        return self not in _DRAINING and self not in _DRAINED


class Change(Enum):
    """What may happen to a session."""

    LINKED = auto()
    """A link is ready."""
    LOST = auto()
    """The link is lost, and another one is wanted."""
    DRAIN = auto()
    """The user wants it to end."""
    EMPTIED = auto()
    """Everything received was handled, or the time for that is over."""
    CLOSE = auto()


_DRAINING: Final = (State.DRAINING, State.DRAINING_RESTORING)
_DRAINED: Final = (State.DRAINED, State.DRAINED_RESTORING)

_ROWS: Final = (
    (State.CONNECTING, Change.LINKED, State.OPEN),
    (State.CONNECTING, Change.CLOSE, State.CLOSED),
    (State.OPEN, Change.LOST, State.OPEN_RESTORING),
    (State.OPEN, Change.DRAIN, State.DRAINING),
    (State.OPEN, Change.CLOSE, State.CLOSED),
    (State.OPEN_RESTORING, Change.LINKED, State.OPEN),
    (State.OPEN_RESTORING, Change.DRAIN, State.DRAINING_RESTORING),
    (State.OPEN_RESTORING, Change.CLOSE, State.CLOSED),
    (State.DRAINING, Change.LOST, State.DRAINING_RESTORING),
    (State.DRAINING, Change.DRAIN, State.DRAINING),  # a second task drains as well
    (State.DRAINING, Change.EMPTIED, State.DRAINED),
    (State.DRAINING, Change.CLOSE, State.CLOSED),
    (State.DRAINING_RESTORING, Change.LINKED, State.DRAINING),
    (State.DRAINING_RESTORING, Change.DRAIN, State.DRAINING_RESTORING),
    (State.DRAINING_RESTORING, Change.EMPTIED, State.DRAINED_RESTORING),
    (State.DRAINING_RESTORING, Change.CLOSE, State.CLOSED),
    (State.DRAINED, Change.LOST, State.DRAINED_RESTORING),
    (State.DRAINED, Change.DRAIN, State.DRAINED),
    (State.DRAINED, Change.EMPTIED, State.DRAINED),
    (State.DRAINED, Change.CLOSE, State.CLOSED),
    (State.DRAINED_RESTORING, Change.LINKED, State.DRAINED),
    (State.DRAINED_RESTORING, Change.DRAIN, State.DRAINED_RESTORING),
    (State.DRAINED_RESTORING, Change.EMPTIED, State.DRAINED_RESTORING),
    (State.DRAINED_RESTORING, Change.CLOSE, State.CLOSED),
    (State.CLOSED, Change.EMPTIED, State.CLOSED),  # closed under a drain
    (State.CLOSED, Change.CLOSE, State.CLOSED),
)
TRANSITIONS: Final = {(state, change): following for state, change, following in _ROWS}


class TransitionError(AssertionError):
    """A change that cannot happen in this state: a mistake in the client, not in its user."""


def after(state: State, change: Change) -> State:
    """The state that follows. Raises TransitionError."""
    try:
        return TRANSITIONS[state, change]
    except KeyError:
        raise TransitionError(
            f"{change.name} cannot happen to a session that is {state.name}"
        ) from None
