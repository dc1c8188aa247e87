"""Makes Arrow batches of message chunks: the columns that are wanted, of the rows that are the task's.

Spark checks the first batch of a task exactly against the schema (order, nullability, time zone), so both
sides use the types defined in ``columns``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ...api.acks import parse_ack_subject
from ...api.times import parse_time
from ...errors import ConfigurationError, ProtocolError
from ...sink_markers import HEADER_LINE, SPACE, is_marker
from ...subjects import SubjectFilter
from ...transforms import partition
from ...wire import parse_headers
from ..columns import COLUMNS, Wanted
from ..decoding.decoder import Columns as DecodedColumns
from ..decoding.decoder import Decoder
from ..decoding.misfits import MalformedError
from ..frames import is_deletion
from ..options import PartitionRule
from .bad_messages import BadMessage, refuse

if TYPE_CHECKING:
    import pyarrow as pa

    from ..frames import Chunk, PayloadChunk

T = TypeVar("T")

_PLACES: Final = frozenset({"sequence", "timestamp"})
_OF_PAYLOADS: Final = frozenset({"data", ""})  # columns that need nothing but the payload
_NAMES: Final = frozenset({"subject", "key"})
_V1_TOKENS: Final = 9


class Selection(NamedTuple):
    """Which rows of a range belong to a task: by subject, and by partition (empty: all)."""

    subjects: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()


class BatchBuilder:
    """Builds Arrow batches of the requested columns, from the selected rows."""

    def __init__(
        self,
        columns: Sequence[str | Wanted],
        stream: str,
        *,
        partitions: int = 0,
        rule: PartitionRule | None = None,
        selection: Selection | None = None,
        on_bad: Callable[[Sequence[BadMessage]], None] = refuse,
        decoder: Decoder | None = None,
        key_begins: int = 0,
        strip_partition: bool = False,
        leave_out_markers: bool = True,
        null_deletions: bool = False,
    ) -> None:
        import pyarrow as pa

        self._pa = pa
        self._stream = stream
        self._on_bad = on_bad
        self._partitions = partitions
        self._rule = rule or PartitionRule()
        selection = selection or Selection()
        self._owned = frozenset(selection.partitions)
        self._matches: Callable[[bytes], bool] | None = None
        if selection.subjects:
            self._matches = SubjectFilter(s.encode() for s in selection.subjects).matches
        fields = [c if isinstance(c, Wanted) else Wanted(c, COLUMNS.get(c, "")) for c in columns]
        self._columns = tuple(field.column for field in fields)
        self._names = tuple(field.name for field in fields)
        self._decoder = decoder
        self._needs_positions = not _PLACES.isdisjoint(self._columns)
        self._needs_subjects = bool(
            self._matches or self._partitions or not _NAMES.isdisjoint(self._columns)
        )
        self._key_begins = key_begins
        self._strip_partition = strip_partition
        self._leaves_out_markers = leave_out_markers
        self._nulls_deletions = null_deletions
        types = [field.type or _arrow_type(field.column, pa) for field in fields]
        self.schema = pa.schema(
            pa.field(field.name, kind, field.nullable)
            for field, kind in zip(fields, types, strict=True)
        )

    @property
    def needs_only_payloads(self) -> bool:
        """Whether it makes batches of ``PayloadChunk``, too."""
        return (
            _OF_PAYLOADS.issuperset(self._columns)
            and not (self._needs_subjects or self._nulls_deletions)
            and (self._decoder is None or self._decoder.reads_arrays)
        )

    def build_of_payloads(self, chunk: PayloadChunk) -> pa.RecordBatch:
        """``build``, where ``needs_only_payloads``: the same rows of the same messages."""
        if self._leaves_out_markers and chunk.may_hold_markers():
            return self.build(chunk.as_rows())
        payloads = chunk.payloads()
        value = None
        if self._decoder is not None:
            value = self._decoder.decode_together(payloads)
            if value is None:  # a message that is out of the ordinary
                return self.build(chunk.as_rows())
        columns = [
            payloads if column or value is None else value[name]
            for column, name in zip(self._columns, self._names, strict=True)
        ]
        return self._pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def build(self, chunk: Chunk) -> pa.RecordBatch:
        """One batch; without rows if none is selected.

        Selected messages of which a wanted column cannot be made are handed to ``on_bad``, which raises or
        leaves them out.
        """
        if self._leaves_out_markers:
            chunk = _without_markers(chunk)
        while True:
            try:
                return self._build(chunk)
            except _UnreadableRowsError as error:
                found = [_bad_message(chunk, row, error.reasons[row]) for row in error.selected]
                if found:
                    self._on_bad(found)
                chunk = _without(chunk, error.reasons)

    def _build(self, chunk: Chunk) -> pa.RecordBatch:
        pa: Any = self._pa
        import pyarrow.compute as pc

        # Columns nobody asked for are not made: they would cost as much as the payloads.
        subjects = pa.array(chunk.subjects if self._needs_subjects else (), pa.binary())
        subjects = subjects.dictionary_encode()
        distinct: list[bytes] = subjects.dictionary.to_pylist()
        numbers = self._partition_numbers(distinct) if self._partitions else None
        keep = self._keep(distinct, numbers)
        mask = None
        if keep is not None:
            mask = pa.array(keep, pa.bool_()).take(subjects.indices)
            if self._decoder is not None:  # what is not selected need not fit
                left_out = {row for row, selected in enumerate(mask.to_pylist()) if not selected}
                if left_out:
                    return self._build(_without(chunk, left_out))
                mask = None
        arrays: dict[str, Any] = {}
        sequences, timestamps = _positions(chunk, pa, pc) if self._needs_positions else (None, None)
        rows = len(chunk.subjects)
        value = self._decode(chunk)
        for name in self._columns:
            if not name or name in arrays:
                continue
            if name in ("subject", "key"):
                try:
                    texts = subjects.dictionary.cast(pa.string())
                except pa.ArrowInvalid:
                    bad = _bad_subjects(distinct, subjects.indices.to_pylist())
                    raise _UnreadableRowsError(bad, mask) from None
                if self._strip_partition:
                    texts = pa.array(
                        [text.partition(".")[2] for text in texts.to_pylist()], pa.string()
                    )
                if name == "key":
                    texts = pc.utf8_slice_codeunits(texts, self._key_begins)
                arrays[name] = texts.take(subjects.indices)
            elif name == "data":
                arrays[name] = pa.array(self._values(chunk), pa.binary())
            elif name == "sequence":
                arrays[name] = sequences
            elif name == "timestamp":
                micros = pc.divide(timestamps, 1000)
                arrays[name] = micros.cast(pa.timestamp("us", "UTC"))
            elif name == "stream":
                arrays[name] = pa.repeat(pa.scalar(self._stream), rows)
            elif name == "partition":
                arrays[name] = (
                    pa.nulls(rows, pa.int32())
                    if numbers is None
                    else pa.array(numbers, pa.int32()).take(subjects.indices)
                )
            else:
                maps, bad = _header_maps(chunk.headers)
                if bad:
                    raise _UnreadableRowsError(bad, mask)
                arrays[name] = pa.array(maps, _arrow_type(name, pa))
        if value is not None and value.rows is not None:
            arrays = {name: array.take(value.rows) for name, array in arrays.items()}
        columns = [
            arrays[column] if column or value is None else value.arrays[name]
            for column, name in zip(self._columns, self._names, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return batch if mask is None else batch.filter(mask)

    def _values(self, chunk: Chunk) -> Sequence[bytes | None]:
        """The payloads; null for those of messages that delete a key of a bucket."""
        if not self._nulls_deletions or not any(chunk.headers):
            return chunk.payloads
        return [
            None if is_deletion(block) else payload
            for block, payload in zip(chunk.headers, chunk.payloads, strict=True)
        ]

    def _decode(self, chunk: Chunk) -> DecodedColumns | None:
        if self._decoder is None:
            return None
        deleted: list[int] = []
        if self._nulls_deletions and any(chunk.headers):
            deleted = [row for row, block in enumerate(chunk.headers) if is_deletion(block)]
        sequence_of = partial(_sequence_of, chunk)
        try:
            if deleted:
                return self._decoder.decode_others(
                    deleted, chunk.payloads, chunk.headers, sequence_of
                )
            return self._decoder.decode(chunk.payloads, chunk.headers, sequence_of)
        except MalformedError as error:
            raise _UnreadableRowsError(error.reasons, None) from None

    def _partition_numbers(self, subjects: list[bytes]) -> list[int | None]:
        """The partition of each distinct subject; None if its token is not a partition number."""
        number_of = self._by_token if self._rule.token else self._by_hash
        return [number_of(subject) for subject in subjects]

    def _by_token(self, subject: bytes) -> int | None:
        tokens = subject.split(b".", self._rule.token)
        token = tokens[self._rule.token - 1] if len(tokens) >= self._rule.token else b""
        if token.isdigit() and (number := int(token)) < self._partitions:
            return number
        return None

    def _by_hash(self, subject: bytes) -> int | None:
        if not self._rule.hashed:
            return partition(subject, self._partitions)
        tokens = subject.split(b".")
        if max(self._rule.hashed) > len(tokens):
            return None
        return partition(b"".join(tokens[i - 1] for i in self._rule.hashed), self._partitions)

    def _keep(self, distinct: list[bytes], numbers: list[int | None] | None) -> list[bool] | None:
        """Which distinct subjects are selected; None for all of them."""
        matches = self._matches
        keep = [matches(subject) for subject in distinct] if matches else None
        if not self._owned or numbers is None:
            return keep
        owned = self._owned
        result = []
        for index, number in enumerate(numbers):
            wanted = keep is None or keep[index]
            if wanted and number is None:
                shown = distinct[index].decode(errors="replace")
                raise ConfigurationError(
                    f"jetstream source: subject {shown!r} belongs to none of the {self._partitions} "
                    "partitions; check 'partitions' and 'partitionBy', or name the "
                    "partitioned subjects with 'subjects'"
                )
            result.append(wanted and number in owned)
        return result


def _arrow_type(name: str, pa: Any) -> pa.DataType:
    kinds = {
        "subject": pa.string(),
        "data": pa.binary(),
        "sequence": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "stream": pa.string(),
        "partition": pa.int32(),
        "headers": pa.map_(pa.string(), pa.list_(pa.string())),
        "key": pa.string(),
    }
    return kinds[name]


def _positions(chunk: Chunk, pa: Any, pc: Any) -> tuple[pa.Array, pa.Array]:
    """Sequences and timestamps (ns), parsed from all ack subjects at once."""
    if not chunk.acks:
        texts = pa.array(chunk.times, pa.string())
        times = texts.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
        return pa.array(chunk.sequences, pa.int64()), times
    if chunk.acks[0].count(b".") == _V1_TOKENS - 1:
        parts = pc.split_pattern(pa.array(chunk.acks, pa.string()), ".", max_splits=4, reverse=True)
        sequences = pc.list_element(parts, 1).cast(pa.int64())
        return sequences, pc.list_element(parts, 3).cast(pa.int64())
    tokens = [parse_ack_subject(ack.decode()) for ack in chunk.acks]
    return (
        pa.array([t.stream_seq for t in tokens], pa.int64()),
        pa.array([t.timestamp_ns for t in tokens], pa.int64()),
    )


class _UnreadableRowsError(Exception):
    """Rows of a chunk of which no column can be made: why, and which of them are selected."""

    def __init__(self, reasons: dict[int, str], mask: pa.Array | None) -> None:
        super().__init__()
        self.reasons = reasons
        self.selected = [row for row in reasons if mask is None or mask[row].as_py()]


def _sequence_of(chunk: Chunk, row: int) -> int:
    if not chunk.acks:
        return chunk.sequences[row]
    return parse_ack_subject(chunk.acks[row].decode()).stream_seq


def _bad_message(chunk: Chunk, row: int, reason: str) -> BadMessage:
    if chunk.acks:
        tokens = parse_ack_subject(chunk.acks[row].decode())
        sequence, stored_ns = tokens.stream_seq, tokens.timestamp_ns
    else:
        sequence, stored_ns = chunk.sequences[row], parse_time(chunk.times[row].decode())
    return BadMessage(
        sequence, stored_ns, chunk.subjects[row], chunk.headers[row], chunk.payloads[row], reason
    )


def _without(chunk: Chunk, rows: Container[int]) -> Chunk:
    """The chunk without these rows."""

    def left(column: list[T]) -> list[T]:
        return [value for row, value in enumerate(column) if row not in rows]

    return chunk._replace(
        subjects=left(chunk.subjects),
        payloads=left(chunk.payloads),
        headers=left(chunk.headers),
        acks=left(chunk.acks),
        sequences=left(chunk.sequences),
        times=left(chunk.times),
    )


def _without_markers(chunk: Chunk) -> Chunk:
    """The chunk without markers of sinks; these have headers, and most messages have none."""
    if not any(chunk.headers):
        return chunk
    begin = SPACE.encode()
    found = {
        row
        for row, (subject, block) in enumerate(zip(chunk.subjects, chunk.headers, strict=True))
        if block
        and (HEADER_LINE in block or subject.startswith(begin))
        and is_marker(subject, block)
    }
    return _without(chunk, found) if found else chunk


def _bad_subjects(distinct: list[bytes], indices: list[int]) -> dict[int, str]:
    """Row → reason, of the rows whose subject is not text."""
    bad = {i for i, subject in enumerate(distinct) if not _is_text(subject)}
    return {
        row: f"its subject {distinct[index]!r} is not UTF-8"
        for row, index in enumerate(indices)
        if index in bad
    }


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _header_maps(blocks: list[bytes]) -> tuple[list[list[tuple[str, list[str]]]], dict[int, str]]:
    """Header blocks as maps, and row → reason of those that cannot be read.

    A message without headers has an empty map.
    """
    maps: list[list[tuple[str, list[str]]]] = []
    bad: dict[int, str] = {}
    for row, block in enumerate(blocks):
        try:
            maps.append(_header_map(block) if block else [])
        except ProtocolError as error:
            bad[row] = f"its headers are malformed: {error}"
    return maps, bad


def _header_map(block: bytes) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, value in parse_headers(block).items():
        # Bytes that are not valid text become surrogates, which Arrow rejects.
        found.setdefault(_text(name), []).append(_text(value))
    return list(found.items())


def _text(value: str) -> str:
    return (
        value
        if value.isascii()
        else value.encode(errors="surrogateescape").decode(errors="replace")
    )
