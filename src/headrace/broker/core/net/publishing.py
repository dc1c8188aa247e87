"""Rules of publishing: reserved reply subjects, the status when nobody is there, groups and runs.

Publishes of one chunk that go to one sink are handed over in a single call: acknowledgements, and messages of
a stream. No reply subject that is reserved for the broker may slip through that way.

Neighbouring publishes of one subject are a run, delivered as one block of bytes to each subscription. Frames
to one subscription differ only in what stands after its id, so a run is the ends of its frames, and a
subscription's block is these ends joined by what stands before each. What is out of the ordinary (a sink,
a limit, a client that cannot read headers, a full output) is left to ``Router.deliver``, message by message:
whoever listens cannot tell the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from ....subjects import are_below
from ....wire.frames import PUB, Frame
from .output import COPY_BYTES_MAX, head_of, tail_of

if TYPE_CHECKING:
    from .router import Route, Router
    from .subscription import Subscription


if TYPE_CHECKING:
    from ..auth.permissions import Permissions
    from ..ports import ManySink, Origin, Sink
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
RUN: Final = b"="
"""The first of a frame no parser makes: ``(RUN, frames, units)``, publishes of one subject.

``units`` are what the copies for all receivers count in a turn, beside the messages.
"""
RUN_MIN: Final = 8  # fewer are not worth it
COPIES_MAX: Final = 8 * 1024  # of one run for all receivers: then the turn is looked at
_UNITS_PER_RECEIVER: Final = 2
_COPIES_PER_UNIT: Final = 16


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
        return _with_runs(router, frames) if frames else frames
    return _with_runs(router, _acks_in_runs(_between(router, frames)))


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


def _acks_in_runs(frames: list[Frame]) -> list[Frame]:
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
    if not _are_all_for(sink, router, frames):
        return frames
    if [True for frame in frames if frame[2][:1] == b"$"]:  # maybe reserved
        return frames
    if router.answers_others and any(f[2].startswith(ANOTHERS_REPLY) for f in frames):
        return frames
    return [*many(frames, origin)]


def _are_all_for(sink: Sink | None, router: Router, frames: list[Frame]) -> bool:
    """Whether these messages have no other receiver."""
    subjects = [frame[1] for frame in frames]
    head = subjects[0].rpartition(b".")[0]
    route = router.route_below(head)  # a million keys: do not look up, and note, each of them
    if route is not None and route.only_sink == sink and are_below(head, subjects):
        return True
    return {router.find(subject).only_sink for subject in {*subjects}} == {sink}


HANDED_OVER: Final[dict[bytes, HandOver]] = {
    ACKS: hand_over_acks,
    MESSAGES: hand_over_messages,
}
"""How frames that stand together are handed over, by what they are."""


_Share = tuple["Subscription", Sequence[bytes], int]
"""Who gets which frames, by what differs in them, and how many bytes of messages that is."""


class _Frames(NamedTuple):
    """The frames of a run after the id: what stands in all of them before and behind what differs."""

    before: bytes
    parts: Sequence[bytes]
    behind: bytes


def _with_runs(router: Router, frames: list[Frame]) -> list[Frame]:
    """Make one of the frames that can probably be delivered as a run."""
    if len(frames) < RUN_MIN or not _may_have_runs(frames):
        return frames
    subjects = [frame[1] for frame in frames if frame[0] == PUB]
    if subjects.count(subjects[0]) == len(frames):
        return _publishes_in_runs(router, frames)  # the commonest: all are of one subject
    found: list[Frame] = []
    run: list[Frame] = []
    subject: bytes | None = None
    for frame in frames:
        if frame[0] == PUB:
            if frame[1] == subject:
                run.append(frame)
                continue
            found += _publishes_in_runs(router, run)
            run, subject = [frame], frame[1]
        else:
            found += _publishes_in_runs(router, run)
            found.append(frame)
            run, subject = [], None
    return found + _publishes_in_runs(router, run)


def _may_have_runs(frames: list[Frame]) -> bool:
    """Whether the first two are alike, or two in the middle."""
    for at in (1, len(frames) // 2):
        one, other = frames[at - 1], frames[at]
        if one[0] == PUB == other[0] and one[1] == other[1]:
            return True
    return False


def _publishes_in_runs(router: Router, frames: list[Frame]) -> list[Frame]:
    """Publishes of one subject, in runs that are not too long for their receivers."""
    route = router.find(frames[0][1]) if len(frames) >= RUN_MIN else None
    if route is None or not route.takes_runs:
        return frames
    receivers = len(route.plain) + len(route.groups)
    size = COPIES_MAX // receivers
    units = receivers * _UNITS_PER_RECEIVER + receivers * min(size, len(frames)) // _COPIES_PER_UNIT
    return [(RUN, frames[at : at + size], units) for at in range(0, len(frames), size)]


def hand_over_run(router: Router, frames: list[Frame], skip_client: int) -> list[Frame]:
    """Deliver publishes of one subject as a run, all or none. Returns the frames left to handle."""
    route = router.find(frames[0][1])
    receivers = len(route.plain) + len(route.groups)
    if not route.takes_runs or receivers * len(frames) > 2 * COPIES_MAX:
        return frames  # it was otherwise when they were put together
    replies = [frame[2] for frame in frames if frame[2]]
    if replies and (router.answers_others or any([reply[0] == 36 for reply in replies])):  # noqa: C419
        return frames  # one may be reserved ("$")
    blocks = [frame[3] for frame in frames]
    headed = any(blocks)
    lengths = [len(frame[4]) for frame in frames]
    if (headed and not all(blocks)) or max(lengths) > COPY_BYTES_MAX:
        return frames
    each = _frames(frames, lengths, is_bare=not (headed or replies))
    shares = _shares(router, route, frames, skip_client, lengths, each.parts)
    head = head_of(frames[0][1], blocks[0])
    written = []
    for subscription, parts, _ in shares:
        start = head + subscription.sid + each.before
        block = start + (each.behind + start).join(parts) + each.behind
        if subscription.output.size + len(block) > subscription.output.room:
            return frames  # it reads too slowly: one of these messages is the one too many
        written.append(block)
    for (subscription, parts, nbytes), block in zip(shares, written, strict=True):
        subscription.output.write(block)
        subscription.output.payload_bytes += nbytes
        subscription.delivered += len(parts)
    return [] if shares else frames


def _frames(frames: list[Frame], lengths: list[int], *, is_bare: bool) -> _Frames:
    """What they have in common. ``is_bare``: they have no replies and no headers."""
    if not is_bare:
        return _Frames(b"", [tail_of(frame[2], frame[3], frame[4])[0] for frame in frames], b"")
    if lengths.count(lengths[0]) == len(lengths):
        return _Frames(b"%d\r\n" % lengths[0], [frame[4] for frame in frames], b"\r\n")
    ends = [b"%d\r\n%b\r\n" % (n, f[4]) for n, f in zip(lengths, frames, strict=True)]
    return _Frames(b"", ends, b"")


def _shares(
    router: Router,
    route: Route,
    frames: list[Frame],
    skip_client: int,
    lengths: list[int],
    parts: Sequence[bytes],
) -> list[_Share]:
    """Who gets what; nothing if that has to be looked at message by message.

    In a queue group each message goes to a member at random, chosen as ``deliver`` chooses.
    """
    headed = bool(frames[0][3])  # as all others are
    plain = [s for s in route.plain if s.client_id != skip_client]
    members = [member for group in route.groups for member in group]
    for subscription in (*plain, *members):
        if subscription.messages_max >= 0 or (headed and not subscription.output.has_headers):
            return []
    if any([member.closed or member.client_id == skip_client for member in members]):  # noqa: C419
        return []
    sizes = [len(f[3]) + n for n, f in zip(lengths, frames, strict=True)] if headed else lengths
    total = sum(sizes)
    shares: list[_Share] = [(subscription, parts, total) for subscription in plain]
    bits, groups = router.random_bits, route.groups
    if len(groups) == 1:
        (group,) = groups
        count = len(group)
        shares += _split(group, [bits(32) % count for _ in frames], parts, sizes)
        return shares
    picked = [[bits(32) % len(group) for group in groups] for _ in frames] if groups else ()
    for number, group in enumerate(groups):
        shares += _split(group, [picks[number] for picks in picked], parts, sizes)
    return shares


def _split(
    group: Sequence[Subscription], picks: list[int], parts: Sequence[bytes], sizes: list[int]
) -> list[_Share]:
    """The members of a queue group with what was picked for each."""
    mine: dict[int, list[bytes]] = {pick: [] for pick in dict.fromkeys(picks)}
    for pick, part in zip(picks, parts, strict=True):
        mine[pick].append(part)
    size = sizes[0]
    if sizes.count(size) == len(sizes):
        return [(group[pick], own, size * len(own)) for pick, own in mine.items()]
    nbytes = dict.fromkeys(mine, 0)
    for pick, size in zip(picks, sizes, strict=True):
        nbytes[pick] += size
    return [(group[pick], own, nbytes[pick]) for pick, own in mine.items()]
