"""The driver side of a query that is a member of a group; Spark calls it as it calls ``query.Query``.

Spark asks for the next batch when it has committed the one before. Only then does the query look at the
group: it releases what was committed, gives back what other members are to have, and takes what is its own.
So no partition changes hands while a batch runs.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from ...api import base
from ...api.envelope import decode_response
from ...api.errors import Errors
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...api.streams import PurgeRequest, PurgeResponse, StreamConfig
from ...errors import ConfigurationError, JetStreamApiError
from ...groups.member.config import Settings, plans
from ...groups.record.records import StaticGroup, first_of
from ...identity import Sameness
from ..links.control import Calls, Control
from ..links.link import Link
from ..loss import may_be_loss, stored_after
from ..lost_messages import Loss, tell
from ..offsets import Offset, StreamHead, check_range, refusal, reset_of
from ..options import CONTINUE, SourceOptions
from ..options.group import GroupOptions
from ..slices import ROUTED_BYTES_MAX, Slice
from .holding import Group, Holding, member_of, names_of, read_record, work_stream
from .offsets import GroupOffset, split

_LOG: Final = logging.getLogger("headrace.spark")

LOOK_S: Final = 0.05
HAND_OVER_S: Final = (
    30.0  # how long a bounded run waits for partitions that another member still has
)
ASKED_AT_ONCE: Final = 256
_MESSAGE_NOT_FOUND: Final = Errors.NO_MESSAGE_FOUND.err_code


class GroupQuery:
    """Offsets and plans of one streaming query, as Spark keeps them.

    Args:
        options: of the query; they name a group.
    """

    def __init__(self, options: SourceOptions) -> None:
        assert options.group is not None
        self._options = options
        self._group: GroupOptions = options.group
        self._stream = work_stream(options.stream, options.group)
        self._call = Calls(
            self._stream, lambda: Link.open(options.connection), options.reconnect_timeout_s
        )
        self._holding: Holding | None = None
        self._initial: GroupOffset | None = None
        self._frozen_at: int | None = None
        self._waited = False  # whether a bounded run has waited for its partitions
        self._released: dict[int, int] = {}
        self._said = ""
        self._latest: dict[str, Any] | None = None
        self._known: tuple[GroupOffset, str] | None = None  # found in the stream of this creation

    @property
    def latest(self) -> dict[str, Any] | None:
        """The end of the stream as last seen, for the progress report."""
        return self._latest

    def initial_offset(self) -> dict[str, Any]:
        """Where a new query begins; the same answer on every call.

        Raises:
            ConfigurationError: there is no such group, or the query is no member of it.
        """
        if self._initial is None:
            self._initial = self._call(self._begin)
        return self._initial.to_dict()

    def _begin(self, control: Control) -> GroupOffset:
        group = read_record(control.link, self._options.stream, self._group)
        member = member_of(group, self._group)
        if member not in group.assignment():
            raise ConfigurationError(
                f"jetstream source: {member!r} is no member of group {self._group.name!r}; there are: "
                f"{', '.join(sorted(group.assignment())) or 'none'}. Add it with headrace group elastic add"
            )
        return GroupOffset(control.head()[0].epoch, {})

    def freeze_target(self) -> None:
        """Offer nothing beyond the stream's present end from now on (Trigger.AvailableNow)."""
        self._frozen_at = self._call(lambda control: control.head()[0].last_seq)

    def latest_offset(self, start: dict[str, Any], *, limited: bool = True) -> dict[str, Any]:
        """The end of the next batch after ``start``; ``start`` itself if there is none yet.

        Raises:
            DataLossError: the stream was made again.
            ConfigurationError: the group is gone, or another query takes part as this member.
        """
        committed = GroupOffset.from_dict(start)
        self._known = None
        deadline = time.monotonic() + self._options.poll_timeout_s
        patient_until = time.monotonic() + HAND_OVER_S
        while not self._call(lambda control: self._between_batches(control, committed)):
            if self._frozen_at is None or self._waited:
                break
            self._waited = time.monotonic() >= patient_until
            time.sleep(LOOK_S)
        while True:
            end = self._call(lambda control: self._end(control, committed, limited=limited))
            if end is not None:
                return end.to_dict()
            if self._frozen_at is not None or time.monotonic() >= deadline:
                return start
            time.sleep(LOOK_S)

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """The tasks of the batch ``(start, end]``."""
        return self._call(
            lambda control: self._plan(
                control, GroupOffset.from_dict(start), GroupOffset.from_dict(end)
            )
        )

    def _plan(self, control: Control, start: GroupOffset, end: GroupOffset) -> list[Slice]:
        head, config = control.head()
        start, end = self._placed(control, start, head), self._placed(control, end, head)
        group = read_record(control.link, self._options.stream, self._group)
        holding = self._holding_of(control, group)
        missing = sorted(set(end.positions) - set(holding.floors))
        if missing:  # of a batch that runs again
            self._say(
                f"partitions {missing} were taken from the query while a batch was not committed"
            )
        options = self._options
        pieces = split(
            start,
            end,
            max_tasks=options.max_tasks,
            min_messages=options.min_messages_per_task,
        )
        slices = []
        for piece in pieces:
            since_ns = stored_after(head, piece.lo)
            is_loss = may_be_loss(config, head, since_ns)
            lo, hi = check_range(
                Offset(piece.lo, head.epoch),
                Offset(piece.hi, head.epoch),
                head,
                self._stream,
                fail_on_loss=options.fail_on_data_loss and is_loss,
            )
            if is_loss and lo > piece.lo:
                tell(Loss(self._stream, piece.lo + 1, lo, lo - piece.lo), options.use.losses)
            slices.append(
                Slice(
                    lo,
                    hi,
                    piece.partitions,
                    since_ns=since_ns,
                    epoch=head.epoch,
                    stream=self._stream,
                    subjects=group.filter_subjects(piece.partitions),
                    size=(hi - lo) * head.mean_bytes,
                    end=(end.highest.seq, end.stored_ns),
                )
            )
        return _together([piece for piece in slices if piece.lo < piece.hi], group)

    def close(self) -> None:
        """Close the connection; what the query holds stays held for its next run."""
        self._call.close()

    hang_up = close

    # Between batches

    def _between_batches(self, control: Control, committed: GroupOffset) -> bool:
        """Release what is committed, then give back and take. Whether the query has all that is its own."""
        head, config = control.head()
        committed = self._placed(control, committed, head)
        group = read_record(control.link, self._options.stream, self._group)
        holding = self._holding_of(control, group)
        wanted = plans(group, member_of(group, self._group))
        holding.check(control)
        self._release(control, config, group, committed)
        holding.settle(control, wanted)
        mine = {p for plan in wanted.values() for p in plan.partitions}
        waits_for = sorted(mine - set(holding.floors))
        if not mine:
            self._say("the query is no member any more, or has no partition; it waits")
        elif waits_for:
            self._say(f"waiting for partitions {waits_for}, which another member still has")
        else:
            self._said = ""
        return not waits_for

    def _holding_of(self, control: Control, group: Group) -> Holding:
        """What the query holds; of an earlier run, too."""
        if self._holding is None:
            is_static = self._group.kind == "static"
            first = first_of(group)
            settings = Settings(None, is_static=is_static, layout=group.layout, first=first)
            member = member_of(group, self._group)
            holding = Holding(settings, member, secrets.token_hex(8))
            holding.adopt(control, names_of(group, member))
            self._holding = holding
        return self._holding

    def _release(
        self, control: Control, config: StreamConfig, group: Group, committed: GroupOffset
    ) -> None:
        """Take what Spark has committed from the work queue; elsewhere, move the consumers behind it."""
        if config.retention == "workqueue":
            due = {p: s for p, s in committed.positions.items() if s > self._released.get(p, 0)}
            subject = control.link.api("STREAM", "PURGE", self._stream)
            bodies = []
            below = _all_read(group, committed)
            if below and any(self._released.get(p, 0) < below for p in due):
                # What everything of is done goes at once, without a look at its subjects.
                bodies.append(PurgeRequest(seq=below + 1))
            bodies += [
                PurgeRequest(filter=pattern, seq=s + 1)
                for p, s in sorted(due.items())
                if s > below
                for pattern in _patterns(group, p)
            ]
            for first in range(0, len(bodies), ASKED_AT_ONCE):
                asked = [(subject, base.encode(b)) for b in bodies[first : first + ASKED_AT_ONCE]]
                for answer in control.link.request_many(asked):
                    decode_response(answer.payload, PurgeResponse)
            self._released.update(due)
            return
        holding = self._holding_of(control, group)
        for name, partitions in holding.consumers().items():
            known = [committed.positions.get(p, 0) for p in partitions]
            floor = max(holding.floors[p] for p in partitions)
            position = min(known)
            if position <= max(floor, self._released.get(partitions[0], 0)):
                continue
            if not control.reset_consumer(name, position + 1):
                raise ConfigurationError(
                    f"jetstream source: the server cannot move consumer {name!r} to what the query has "
                    "committed; a query in a static group needs Headrace, or nats-server 2.14 or newer"
                )
            self._released.update(dict.fromkeys(partitions, position))

    def _say(self, text: str) -> None:
        """Say something once, until something else is to be said."""
        if text != self._said:
            self._said = text
            _LOG.warning("group %r of stream %r: %s", self._group.name, self._options.stream, text)

    # The next batch

    def _end(
        self, control: Control, committed: GroupOffset, *, limited: bool
    ) -> GroupOffset | None:
        """The end of the next batch; None if no partition has a message for it."""
        assert self._holding is not None
        head, _ = control.head()
        was = committed.positions
        committed = self._placed(control, committed, head)
        last = head.last_seq if self._frozen_at is None else min(head.last_seq, self._frozen_at)
        floors = self._holding.floors
        starts = {p: max(committed.positions.get(p, 0), floors[p]) for p in floors}
        shown = {p: max(last, start) for p, start in starts.items()}
        self._latest = GroupOffset(head.epoch, shown).to_dict()
        firsts = self._firsts(control, starts)
        lo = min((seq for seq in firsts.values() if seq), default=last + 1) - 1
        if lo >= last:
            return None
        hi = min(last, lo + self._at_most(head)) if limited else last
        ends = {p: max(hi, start) for p, start in starts.items()}
        begins = {p: s for p, s in starts.items() if s != was.get(p, 0)}
        stored_ns = control.stored_ns(max(ends.values(), default=0), head)
        return GroupOffset(head.epoch, ends, begins, stored_ns)

    def _placed(self, control: Control, offset: GroupOffset, head: StreamHead) -> GroupOffset:
        """An offset as it is in the stream that is there. Raises DataLossError: in another one it is none."""
        known = offset.highest
        if self._known == (offset, head.epoch) and known.seq <= head.last_seq:
            return offset
        same = control.sameness(known, head)
        reason = reset_of(known, head, self._stream, same)
        if not reason:
            self._known = offset, head.epoch
            return offset
        untold = same is Sameness.OTHER and not known.stored_ns
        if self._options.on_stream_reset != CONTINUE or untold:
            raise refusal(reason, known, same)
        self._say(f"{reason}; the query goes on after what it has read")
        return offset.up_to(control.place(known, head, same))

    def _at_most(self, head: StreamHead) -> int:
        pace = self._options.pace
        bounds = [head.last_seq]
        if pace.max_rows is not None:
            bounds.append(pace.max_rows)
        if pace.max_bytes is not None:
            bounds.append(max(1, pace.max_bytes // head.mean_bytes))
        return min(bounds)

    def _firsts(self, control: Control, starts: Mapping[int, int]) -> dict[int, int]:
        """The first message after each of these positions, as the leader sees it; 0 if there is none."""
        subject = control.link.api("STREAM", "MSG", "GET", self._stream)
        found: dict[int, int] = {}
        partitions = sorted(starts)
        for first in range(0, len(partitions), ASKED_AT_ONCE):
            some = partitions[first : first + ASKED_AT_ONCE]
            asked = [
                base.encode(GetMessageRequest(seq=starts[p] + 1, next_by_subj=f"{p}.>"))
                for p in some
            ]
            answers = control.link.request_many([(subject, body) for body in asked])
            for partition, answer in zip(some, answers, strict=True):
                try:
                    response = decode_response(answer.payload, GetMessageResponse)
                    found[partition] = response.message.seq
                except JetStreamApiError as error:
                    if error.err_code != _MESSAGE_NOT_FOUND:
                        raise
                    found[partition] = 0
        return found


def _together(slices: list[Slice], group: Group) -> list[Slice]:
    """The tasks, of which those with the same range read it once for all of them."""
    by_range: dict[tuple[int, int], list[Slice]] = {}
    for piece in slices:
        by_range.setdefault((piece.lo, piece.hi), []).append(piece)
    made = []
    for pieces in by_range.values():
        if len(pieces) == 1 or pieces[0].size > ROUTED_BYTES_MAX:
            made += pieces
            continue
        shares = tuple(piece.partitions for piece in pieces)
        subjects = group.filter_subjects(sorted(chain(*shares)))
        route, tasks = secrets.token_hex(8), len(pieces)
        made += [
            piece._replace(route=route, tasks=tasks, shares=shares, subjects=subjects)
            for piece in pieces
        ]
    return made


def _all_read(group: Group, committed: GroupOffset) -> int:
    """Up to where all messages of the group's own stream are read; 0 where that is not known.

    A static group may share its stream with others, of a partition that is not ours nobody knows, and while
    the partitions change there may be messages of former ones.
    """
    if isinstance(group, StaticGroup) or group.change is not None:
        return 0
    if committed.positions.keys() != set(range(group.max_members)):
        return 0
    return min(committed.positions.values())


def _patterns(group: Group, partition: int) -> tuple[str, ...]:
    """The subjects of a partition. Another group may take others of a stream that numbers them itself."""
    if isinstance(group, StaticGroup):
        return group.filter_subjects((partition,))
    return (f"{partition}.>",)
