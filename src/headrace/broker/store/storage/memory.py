"""The store without a disk: streams and values that live as long as the process.

It obeys the same rules as the file store, so whatever runs on one runs on the other: nothing counts as
durable before the flush that carries it completes. Here that is before ``flush`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import add
from typing import Final

from ....errors import StoreError
from ....message import StoredRow
from ..commit.writer import Work
from ..index.index import Segment
from ..io.findings import Finding
from ..log import appends
from ..log.appends import ExpiryOf, Staged
from ..log.log import StreamLog
from ..log.part import Part

__all__ = ["MemoryLog", "MemoryMeta", "MemoryStorage"]

_SEGMENT_MESSAGES: Final = 4096
_OVERHEAD: Final = 16  # nats-server accounts subject + headers + payload + 16 in memory


class MemoryLog(StreamLog):
    """One stream in memory; see ``StreamStore`` in ``core/ports.py``."""

    def __init__(self, name: str, mark_dirty: Callable[[StreamLog], None]) -> None:
        super().__init__(name, Segment(0, 1), mark_dirty)
        self.segments[0].durable = True

    @property
    def staged_bytes(self) -> int:
        """Nothing: in memory there is nothing to wait for."""
        return 0

    def append(self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int) -> int:
        """Stage one message; return its sequence. Raises StoreError once the stream is deleted."""
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
        subject: bytes,
        payloads: Sequence[bytes],
        timestamp_ns: int,
        blocks: Sequence[bytes] = (),
    ) -> None:
        """``append`` for messages of one subject, a segment's worth at a time."""
        if self.search.occurrences is not None or self.superseded is not None:
            appends.append_each(self, subject, payloads, timestamp_ns, blocks)
            return
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

    def append_expiring(
        self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int, expires_ns: int
    ) -> int:
        """Stage one message that expires by itself; return its sequence. Raises as ``append`` does."""
        return appends.append_expiring(self, subject, headers, payload, timestamp_ns, expires_ns)

    def append_together(self, messages: Sequence[Staged]) -> int:
        """Stage messages of which a restart finds all or none; see ``appends.append_together``."""
        return appends.append_together(self, messages)

    def reset_first(self, sequence: int) -> None:
        """On an empty stream only: the next message gets this sequence; see ``appends``."""
        appends.reset_first(self, sequence)

    def skip_to(self, sequence: int) -> None:
        """The next message gets this sequence; those in between are never used; see ``appends``."""
        appends.skip_to(self, sequence)

    def make_room(self, nbytes: int) -> None:
        """There is always room. Raises StoreError if nothing may be changed."""
        self.check_writable()

    def flag_last(self, flag: int) -> None:
        """Flags are for restarts."""

    def stage(self, work: Work) -> Part:
        """Everything since the last flush becomes a part of the next batch; there are no writes."""
        self.clean = True
        return self.removals.begin_part()

    def give_back(self) -> None:
        """Nothing to do: there is no disk that could be full."""

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

    def _decode(
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


class MemoryMeta:
    """Values by key, in memory; see ``MetaJournal`` in ``core/ports.py``."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[bytes, list[bytes]]] = {}

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]:
        """Every key with its value and the deltas since that value was put."""
        return self._values

    def put(self, key: str, value: bytes) -> None:
        """Set a key's value and drop its deltas."""
        self._values[key] = (value, [])

    def append(self, key: str, delta: bytes) -> None:
        """Add a delta to a key; one that was never put has the value ``b""``."""
        self._values.setdefault(key, (b"", []))[1].append(delta)

    def delete(self, key: str) -> None:
        """Forget a key; one that is not there is none the worse."""
        self._values.pop(key, None)

    staged: Final = False

    def keep_beside(self, key: str, stream: str) -> None:
        """Nothing to do: memory is not kept."""

    def loose(self, key: str) -> list[bytes]:
        """Nothing: no delta is ever without its value."""
        return []

    def was_deleted(self, key: str) -> bool:
        """Never: it begins empty."""
        return False


class MemoryStorage:
    """A store of streams in memory; see ``Storage`` in ``core/ports.py``."""

    sync: Final = "memory"
    failed: Final[Exception | None] = None
    pending_bytes: Final = 0

    def __init__(self) -> None:
        self._meta = MemoryMeta()
        self.report: list[Finding] = []
        self._streams: dict[str, MemoryLog] = {}
        self._dirty: dict[MemoryLog, None] = {}

    @property
    def meta(self) -> MemoryMeta:
        return self._meta

    def streams(self) -> list[str]:
        """The names of all streams, sorted."""
        return sorted(self._streams)

    def create_stream(self, name: str, *, memory: bool = True) -> MemoryLog:
        """Make an empty stream. Raises StoreError if there is one of this name."""
        if name in self._streams:
            raise StoreError(f"stream {name!r} exists already")
        log = self._streams[name] = MemoryLog(name, self._mark_dirty)
        return log

    def open_stream(self, name: str, expiry_of: ExpiryOf | None = None) -> MemoryLog:
        """The stream of this name. Raises StoreError if there is none."""
        log = self._streams.get(name)
        if log is None:
            raise StoreError(f"no stream {name!r} in the store")
        return log

    def delete_stream(self, name: str) -> None:
        """Drop a stream with all its messages. Raises StoreError if there is none."""
        log = self.open_stream(name)
        del self._streams[name]
        self._dirty.pop(log, None)
        log.discard()

    def barred(self) -> dict[str, str]:
        """Nothing is in the way of a name."""
        return {}

    def location(self, name: str) -> str:
        """Where a stream lies."""
        return "memory"

    def is_unfinished(self, name: str) -> bool:
        """Never: a flush is not cut off."""
        return False

    def note(self, what: str, stream: str = "") -> None:
        """Add to ``report`` what whoever uses the metadata found wrong with it."""
        self.report.append(Finding(self.location(stream), 0, what, stream))

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        """Make everything staged so far count as durable; ``done(None)`` is called before it returns."""
        dirty, self._dirty, work = self._dirty, {}, Work()
        for log in dirty:
            log.complete(log.stage(work))
        done(None)

    def complete(self) -> None:
        """Nothing to do: flushes complete at once."""

    def close(self) -> None:
        """Nothing to do: there is nothing to keep."""

    def _mark_dirty(self, log: StreamLog) -> None:
        known = self._streams.get(log.name)
        if known is None or known is not log:
            raise StoreError(f"stream {log.name!r} was deleted")
        self._dirty[known] = None
