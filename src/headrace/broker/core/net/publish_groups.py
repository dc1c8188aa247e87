"""Publishes of one chunk that go to one sink in a single call: acknowledgements, messages of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....wire.frames import PUB, Frame
from .replies import ANOTHERS_REPLY, RESERVED_REPLY

if TYPE_CHECKING:
    from ..ports import Origin
    from .router import Router

__all__ = ["hand_over_groups"]

FAST_REPLY: Final = b".$FI"  # ends the replies of messages that are always worth grouping
GROUP_MIN: Final = 8  # so many of any kind are


def hand_over_groups(router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
    """Hand over what can go in a single call. Returns the frames left to handle.

    The first of ``frames`` is a publish, and ``origin`` may publish anything without a check.
    """
    if frames[0][1].startswith(RESERVED_REPLY):
        return _hand_over_acks(router, origin, frames)
    if len(frames) >= GROUP_MIN or frames[0][2].endswith(FAST_REPLY):
        return _hand_over_messages(router, origin, frames)
    return frames


def _hand_over_acks(router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
    """Hand over the acknowledgements at the front."""
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


def _hand_over_messages(router: Router, origin: Origin, frames: list[Frame]) -> list[Frame]:
    """Hand over a whole chunk if it is for one sink that takes batches."""
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
