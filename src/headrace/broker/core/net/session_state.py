"""The life of a session as a table: each state, each event, and what follows.

A session changes its state by ``next_state`` alone. What is not in the table cannot happen, and says so.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class SessionState(Enum):
    """``is_in``: the client was let in. ``is_deciding``: its input is kept. ``is_closed``: it is over."""

    __hash__ = object.__hash__  # Enum's own is a call in Python, for each change of a session

    AWAITING_LOGIN = ("the client has not been let in", False, False, False)
    DECIDING = ("it is being decided whether the client is let in", False, True, False)
    OPEN = ("the client was let in, and what it says is handled", True, False, False)
    DECIDING_AGAIN = ("a client that is in has sent CONNECT again", True, True, False)
    CLOSED = ("it is over", False, False, True)

    def __init__(self, meaning: str, is_in: bool, is_deciding: bool, is_closed: bool) -> None:
        self.meaning = meaning
        self.is_in = is_in
        self.is_deciding = is_deciding
        self.is_closed = is_closed


class SessionEvent(Enum):
    """What can change the state of a session."""

    __hash__ = object.__hash__  # Enum's own is a call in Python, for each change of a session

    DEFER = auto()
    """Who the client is takes long to decide (a password and its hash)."""
    DECIDE = auto()
    """The decision is made, and what it says comes next: ``ENTER``, ``CLOSE``, or ``DEFER`` once more."""
    ENTER = auto()
    """The client is let in, for the first time or again."""
    CLOSE = auto()
    """Either end has had enough, or the socket is gone."""


_S, _E = SessionState, SessionEvent

TRANSITIONS: Final = {
    (_S.AWAITING_LOGIN, _E.DEFER): _S.DECIDING,
    (_S.AWAITING_LOGIN, _E.ENTER): _S.OPEN,
    (_S.AWAITING_LOGIN, _E.CLOSE): _S.CLOSED,
    (_S.DECIDING, _E.DECIDE): _S.AWAITING_LOGIN,
    (_S.DECIDING, _E.CLOSE): _S.CLOSED,
    (_S.OPEN, _E.DEFER): _S.DECIDING_AGAIN,
    (_S.OPEN, _E.ENTER): _S.OPEN,
    (_S.OPEN, _E.CLOSE): _S.CLOSED,
    (_S.DECIDING_AGAIN, _E.DECIDE): _S.OPEN,
    (_S.DECIDING_AGAIN, _E.CLOSE): _S.CLOSED,
}


def next_state(state: SessionState, event: SessionEvent) -> SessionState:
    """The state after ``event``. Raises RuntimeError, a fault of ours, if it cannot happen in ``state``."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise RuntimeError(f"{event.name} cannot happen to a session that is {state.name}")
    return found
