"""A stream in memory. It obeys the same rules as one on disk, so whatever runs on one runs on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Final

from ....message import StoredRow
from ..commit.writer import Work
from ..index.index import Segment
from . import appends
from .log import StreamLog
from .removals import Part

_SEGMENT_MESSAGES: Final = 4096
_OVERHEAD: Final = 16  # nats-server accounts subject + headers + payload + 16 in memory


class MemoryLog(StreamLog):
    """One stream in memory; see ``StreamStore`` in ``core/ports/storage.py``."""

    append_expiring = appends.append_expiring
    append_together = appends.append_together
    reset_first = appends.reset_first
    skip_to = appends.skip_to

    def __init__(self, name: str, mark_dirty: Callable[[StreamLog], None]) -> None:
        super().__init__(name, Segment(0, 1), mark_dirty)
        self.segments[0].durable = True

    @property
    def staged_bytes(self) -> int:
        """None: in memory there is nothing to wait for."""
        return 0

    def append(self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int) -> int:
        if self.clean:
            self.check_writable()
        sequence = self.last_seq + 1
        segment = self.segments[-1]
        if len(segment.stamps) >= _SEGMENT_MESSAGES or segment.sealed:
            segment = self._roll(sequence)
        table = self.table
        sid = table.ids.get(subject)
        if sid is None:
            sid = table.intern(subject)
        size = len(subject) + len(headers) + len(payload) + _OVERHEAD
        segment.sizes.append(size)
        segment.sids.append(sid)
        segment.stamps.append(timestamp_ns)
        segment.bodies.append((headers, payload))
        if table.counts[sid]:
            if self.superseded is not None:
                self.superseded.append((sid, table.lasts[sid]))
            table.counts[sid] += 1
        else:
            table.add(sid, sequence, sequence, 1)
        table.lasts[sid] = sequence
        if self.search.occurrences is not None:
            self.search.occurrences.add(sid, sequence)
        self.messages += 1
        self.bytes += size
        self.last_seq = sequence
        return sequence

    def append_many(
        self,
        subjects: Sequence[bytes],
        payloads: Sequence[bytes],
        timestamp_ns: int,
        blocks: Sequence[bytes] = (),
    ) -> None:
        is_noted = self.search.occurrences is not None or self.superseded is not None
        if is_noted or len(subjects) > 1 or not payloads:
            appends.append_each(self, subjects, payloads, timestamp_ns, blocks)
            return
        subject = subjects[0]
        if self.clean:
            self.check_writable()
        table = self.table
        sid = table.intern(subject)
        overhead = len(subject) + _OVERHEAD
        position, total = 0, len(payloads)
        while position < total:
            sequence = self.last_seq + 1
            segment = self.segments[-1]
            if len(segment.stamps) >= _SEGMENT_MESSAGES or segment.sealed:
                segment = self._roll(sequence)
            room = _SEGMENT_MESSAGES - len(segment.stamps)
            some = payloads[position : position + room]
            count = len(some)
            sizes = [len(payload) + overhead for payload in some]
            heads: Iterable[bytes] = repeat(b"")
            if blocks:
                heads = blocks[position : position + room]
                sizes = list(map(add, sizes, map(len, heads)))
            segment.sizes.extend(sizes)
            segment.sids.extend([sid] * count)
            segment.stamps.extend([timestamp_ns] * count)
            segment.bodies.extend(zip(heads, some, strict=False))
            last = sequence + count - 1
            table.add(sid, sequence, last, count)
            self.messages += count
            self.bytes += sum(sizes)
            self.last_seq = last
            position += count

    def make_room(self, nbytes: int) -> None:
        """There is always room. Raises StoreError if nothing may be changed."""
        self.check_writable()

    def append_open(self, messages: Sequence[appends.Staged]) -> None:
        """Append each: what is in memory is not found by a restart, in part or whole."""
        for subject, headers, payload, timestamp_ns, _ in messages:
            self.append(subject, headers, payload, timestamp_ns)

    def flag_last(self, flag: int) -> None:
        """Flags are for restarts."""

    def stage(self, work: Work) -> Part:
        """Everything since the last flush becomes a part of the next batch; there are no writes."""
        self.clean = True
        return self.removals.begin_part()

    def give_back(self) -> None:
        """Do nothing: there is no disk that could be full."""

    def discard(self) -> None:
        """The stream is deleted: whoever still holds it gets an error for changes."""
        self.clean = True

    def fail(self) -> None:
        """Take back everything that is not durable; see ``Removals.fail``."""
        self.removals.fail()
        self.clean = True  # nothing of it is staged any more: the next change has to say so again

    def complete(self, part: Part) -> None:
        """Let go of the bytes of what was removed."""
        for segment in self.removals.complete(part):
            self._retire(segment)
        segments, index_of = self.segments, self.segment_index
        for sequence in part.removed:
            segment = segments[index_of(sequence)]
            position = sequence - segment.base
            if 0 <= position < len(segment.bodies):  # or its segment is gone already
                segment.bodies[position] = None
        self._release(part.floor, part.first)

    def _release(self, start: int, stop: int) -> None:
        if stop <= start:
            return
        for segment in self.segments[self.segment_index(start) :]:
            if segment.base >= stop:
                break
            low, high = segment.lower(start), segment.lower(stop)
            segment.bodies[low:high] = [None] * (high - low)

    def _roll(self, base: int) -> Segment:
        tail = self.segments[-1]
        tail.live_counts()  # now, a few thousand at a time, rather than all when they are asked for
        tail.sealed = True
        tail.data_end = sum(tail.sizes)
        segment = Segment(tail.serial + 1, base)
        segment.durable = True
        self.segments.append(segment)
        self.bases.append(base)
        if not tail.live:
            self.removals.died.append(tail)
        return segment

    def _retire(self, segment: Segment) -> None:
        index = self.segments.index(segment)
        del self.segments[index]
        del self.bases[index]
        self.forget_totals(segment)

    def skip_past(self, last_seq: int) -> None:
        """Sequences up to ``last_seq`` will not be used; the next append begins a segment."""
        self.last_seq = last_seq
        if not self.messages:
            self.first = last_seq + 1
        self.segments[-1].sealed = True

    def decode(
        self, segment: Segment, positions: Sequence[int], out: list[StoredRow], room: int
    ) -> int:
        names, sids, stamps, bodies = (
            self.table.names,
            segment.sids,
            segment.stamps,
            segment.bodies,
        )
        if isinstance(positions, range) and segment.rel is None:
            start, stop = positions.start, positions.stop
            some = bodies[start:stop]
            rows = [
                (sequence, names[sid], body[0], body[1], timestamp_ns)
                for sequence, sid, body, timestamp_ns in zip(
                    range(segment.base + start, segment.base + stop),
                    sids[start:stop],
                    some,
                    stamps[start:stop],
                    strict=True,
                )
                if body is not None
            ]
            size = sum([len(row[1]) + len(row[2]) + len(row[3]) for row in rows])
            if size <= room:
                out += rows
                return room - size
        for position in positions:
            body = bodies[position]
            assert body is not None  # live messages keep their bytes
            headers, payload = body
            subject = names[sids[position]]
            room -= len(subject) + len(headers) + len(payload)
            if room < 0 and out:
                return room
            sequence = segment.sequence(position)
            out.append((sequence, subject, headers, payload, stamps[position]))
        return room
