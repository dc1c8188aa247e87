"""Rules of publishing: reserved reply subjects, the status when nobody is there, groups for one sink.

Publishes of one chunk that go to one sink are handed over in a single call: acknowledgements, and messages of
a stream. No reply subject that is reserved for the broker may slip through that way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Final

from ....wire.frames import PUB, Frame
from .runs import with_runs

if TYPE_CHECKING:
    from ..auth.permissions import Permissions
    from ..ports.bus import ManySink, Origin
    from .router import Router

    HandOver = Callable[[Router, Origin, list[Frame]], list[Frame]]

RESERVED_REPLY: Final = b"$JS.ACK."  # such a reply would acknowledge somebody's message,
ANOTHERS_REPLY: Final = b"_R_."  # and such a one answer somebody in another account
RESERVED: Final = (RESERVED_REPLY, ANOTHERS_REPLY)
_INBOX: Final = b"_INBOX"  # a stream that keeps all answers means these, too
FAST_REPLY: Final = b".$FI"  # ends the replies of messages that are always worth grouping
GROUP_MIN: Final = 8  # so many of any kind are
ACKS: Final = b"+"
"""The first of a frame no parser makes: ``(ACKS, frames)``, acknowledgements that stand together."""
MESSAGES: Final = b"&"
"""Likewise: ``(MESSAGES, frames)``, messages that are probably for one sink."""


def is_refused(reply: bytes, router: Router, permissions: Permissions | None) -> bool:
    """Whether a client may not use this reply subject.

    A reply subject that the broker itself receives, such as a stream's, needs permission to publish there:
    the answer would do what a publish does. Any other reply subject is allowed.
    """
    if reply.startswith(RESERVED):
        return True
    return (
        permissions is not None
        and not reply.startswith(_INBOX)
        and bool(router.find(reply).sinks)
        and not permissions.may_publish(reply)
    )


def say_nobody(router: Router, client_id: int, subject: bytes, reply: bytes) -> None:
    """Tell the requester, on its own subscription, that nobody received the request."""
    route = router.find(reply)
    for subscription in chain(route.plain, *route.groups):
        if subscription.client_id == client_id:
            status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
            subscription.tell(reply, status)
            return


def hand_over_groups(router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
    """Hand over what can go in a single call. Returns the frames left to handle.

    The first of ``frames`` is a publish, and ``origin`` may publish anything without a check.
    """
    if frames[0][1].startswith(RESERVED_REPLY):
        return hand_over_acks(router, origin, frames)
    if len(frames) >= GROUP_MIN or frames[0][2].endswith(FAST_REPLY):
        return hand_over_messages(router, origin, frames)
    return frames


def grouped(router: Router, frames: list[Frame]) -> list[Frame]:
    """Make one of the frames that can probably be handled together."""
    if len(frames) <= GROUP_MIN:
        return with_runs(router, frames) if frames else frames
    return with_runs(router, in_runs(_between(router, frames)))


def _between(router: Router, frames: list[Frame]) -> list[Frame]:
    """Make one of the messages between a request before them and a line behind them.

    A client asks for something and then writes, or writes and then wants to hear that it was read: neither
    is a reason to take its messages one by one.
    """
    end = len(frames) if frames[-1][0] == PUB else len(frames) - 1
    sink = _sink_of_many(router, frames[1])
    begin = 0 if _sink_of_many(router, frames[0]) == sink else 1
    if sink is None or not GROUP_MIN <= end - begin < len(frames):
        return frames
    for frame in (frames[end - 1], frames[(begin + end) // 2]):
        if _sink_of_many(router, frame) != sink:
            return frames
    return [*frames[:begin], (MESSAGES, frames[begin:end]), *frames[end:]]


def _sink_of_many(router: Router, frame: Frame) -> ManySink | None:
    """What takes this message with others, if it is one for such a sink."""
    if frame[0] != PUB or frame[1].startswith(RESERVED_REPLY):
        return None
    sink = router.find(frame[1]).only_sink
    return None if sink is None else router.many_of(sink)


def in_runs(frames: list[Frame]) -> list[Frame]:
    """Make one of each run of acknowledgements: between pulls, as consumers send them.

    A look at two of them tells whether there may be a run that is worth it.
    """
    if len(frames) <= GROUP_MIN or not (_is_ack(frames[-1]) or _is_ack(frames[len(frames) // 2])):
        return frames
    found: list[Frame] = []
    run: list[Frame] = []
    for frame in frames:
        if _is_ack(frame):
            run.append(frame)
            continue
        found += [(ACKS, run)] if len(run) >= GROUP_MIN else run
        run = []
        found.append(frame)
    found += [(ACKS, run)] if len(run) >= GROUP_MIN else run
    return found


def _is_ack(frame: Frame) -> bool:
    return frame[0] == PUB and bool(frame[1].startswith(RESERVED_REPLY))


def hand_over_acks(router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
    """Hand over the acknowledgements at the front. Returns the frames left to handle."""
    route = router.acks()
    sink = None if route is None else route.only_sink
    many = None if sink is None else router.many_of(sink)
    if many is None:
        return frames
    end = 0
    for frame in frames:
        if frame[0] != PUB or not frame[1].startswith(RESERVED_REPLY):
            break
        end += 1
    if any([frame[2] for frame in frames[:end]]):  # noqa: C419 - quicker as a list
        return frames
    return [*many(frames[:end], origin), *frames[end:]]


def hand_over_messages(router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
    """Hand over messages, all or none, if they are for one sink that takes batches."""
    total, find = len(frames), router.find
    sink = find(frames[0][1]).only_sink
    many = None if sink is None else router.many_of(sink)
    if many is None or [frame[0] for frame in frames].count(PUB) != total:
        return frames
    sinks = {find(subject).only_sink for subject in {frame[1] for frame in frames}}
    if len(sinks) > 1 or [True for frame in frames if frame[2][:1] == b"$"]:  # maybe reserved
        return frames
    if router.answers_others and any(f[2].startswith(ANOTHERS_REPLY) for f in frames):
        return frames
    return [*many(frames, origin)]


HANDED_OVER: Final[dict[bytes, HandOver]] = {
    ACKS: hand_over_acks,
    MESSAGES: hand_over_messages,
}
"""How frames that stand together are handed over, by what they are."""
