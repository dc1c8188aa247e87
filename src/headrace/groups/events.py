"""What happens to a member at work, as connection events: see ``Connection.events`` and ``on_event``."""

from __future__ import annotations

from dataclasses import dataclass

from ..client.events import Event

__all__ = ["CopyPaused", "GroupStuck", "HandlerFailed", "LeaseLost", "LoopBlocked"]


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """The event loop stood still for ``seconds``, in which no member of it could say that it is there.

    At two thirds of ``lease`` the partitions may go to another instance. ``handler`` is the function that ran
    meanwhile, and ``subject`` and ``sequence`` its message; where it was none of this member they are "" and
    0, and something else in the process blocked the loop, or the process itself stood still.
    """

    member: str
    handler: str
    subject: str
    sequence: int
    seconds: float
    lease: float


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """A handler ended when its partition was not surely this instance's any more: the message may have been
    delivered to another one meanwhile, unless it was acknowledged before."""

    member: str
    partition: int
    generation: int
    subject: str
    sequence: int


@dataclass(frozen=True, slots=True)
class HandlerFailed(Event):
    """A handler has failed, for the last time where the policy is to try again: the membership ends.

    ``delivered`` counts the deliveries of the message, this one included.
    """

    member: str
    subject: str
    sequence: int
    delivered: int
    key: object
    error: Exception


@dataclass(frozen=True, slots=True)
class CopyPaused(Event):
    """The server has not looked for ``seconds`` at what it copies from ``stream`` into the work queue of the
    member's group: new messages wait. It begins again by itself. Told once, while it lasts.

    ``is_full`` says that the work queue has no room. Else the server was restarted, or is busy: a
    nats-server notices after 10 s that a copy stands, and waits longer each time where that fails.
    """

    member: str
    stream: str
    queue: str
    seconds: float
    is_full: bool


@dataclass(frozen=True, slots=True)
class GroupStuck(Event):
    """Messages pass by the member's group, or none can come any more, and only a change outside mends it:
    the stream is gone, its subjects were renamed, its transform numbers other partitions. Told once, while it
    lasts.

    ``kind`` is a word for programs, as of ``headrace.groups.trouble.Trouble``; ``text`` says what is
    the case, ``mend`` what mends it.
    """

    member: str
    kind: str
    text: str
    mend: str
