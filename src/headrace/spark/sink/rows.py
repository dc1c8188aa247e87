"""Arrow batches to messages: subjects, header lines and payloads, and which rows make none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import ProtocolError
from ...sink_markers import HEADER
from ...subjects import SubjectFilter, is_subset, is_valid_subject, overlaps
from ...wire import encode_headers
from .layout import Layout
from .options import SinkOptions
from .template import Template
from .values import Payload, UnfitValue, encoder_of
from .versions import HEADER as VERSION

if TYPE_CHECKING:
    import pyarrow as pa

_KNOWN_SUBJECTS_MAX: Final = 10_000
_FRONT: Final = len(b"NATS/1.0\r\n")
_TTL: Final = re.compile(r"never|[1-9]\d*|(?=.*[1-9])(\d+(\.\d+)?(h|m|s))+")
_DIGEST_BYTES: Final = 8
_COPIED_MAX: Final = 4096  # a payload up to this size is copied sooner than taken in by itself
_NOT_A_ROWS: Final = ("nats-", HEADER.lower(), VERSION.lower())
"""Begins of headers that tell a server what to do, or say what another message was."""


class BadRow(NamedTuple):
    """A row that makes no message: which one of the task it is, what there is of it, and why."""

    label: str
    subject: bytes
    lines: bytes
    payload: bytes
    reason: str


class Rows(NamedTuple):
    """Messages to be: three lists of one length. ``lines`` are header lines with their ends, or empty."""

    subjects: list[bytes]
    lines: list[bytes]
    payloads: list[bytes]

    def __len__(self) -> int:
        return len(self.subjects)


class Limits(NamedTuple):
    """What a message must keep to: the stream's subjects but ``reserved``, bytes of headers and payload."""

    subjects: tuple[str, ...]
    reserved: str
    size_max: int


class RowEncoder:
    """Makes the messages of one task.

    Args:
        id_prefix: begins the message ids, where rows have none of their own; "" gives none.
        on_bad: is told of rows that make no message, before the others are returned.
    """

    def __init__(
        self,
        options: SinkOptions,
        layout: Layout,
        limits: Limits,
        id_prefix: str,
        on_bad: Callable[[Sequence[BadRow]], None],
    ) -> None:
        self._layout = layout
        self._limits = limits
        self._id_prefix = id_prefix
        self._on_bad = on_bad
        self._encode_values = encoder_of(layout, options.value_schema)
        self._schema_line = options.value_schema.header_line if options.value_schema else b""
        self._subjects = _Subjects(options.subject, layout, limits)
        columns = layout.headers, layout.message_id, layout.ttl
        self._has_lines = bool(id_prefix or self._schema_line) or max(columns) >= 0
        self.number = 0  # of rows seen, the bad ones included
        self.numbers: Sequence[int] = ()  # of the rows that were made into messages last

    def subjects_of(self, batch: pa.RecordBatch) -> Sequence[bytes | None]:
        """The subject of each row; None where it can have none."""
        return self._subjects.of(batch)

    def complaint(self, subject: bytes | None) -> str | None:
        """Why there can be no message on this subject; None if there can."""
        return self._subjects.complaint(subject)

    def encode(self, batch: pa.RecordBatch, numbers: Sequence[int] = ()) -> Rows:
        """The messages of a batch's rows, in their order.

        ``numbers`` are those of the rows in the task; by default each call has the rows that come next.
        """
        count = batch.num_rows
        subjects = self._subjects.of(batch)
        payloads = self._encode_values(batch)
        lines: list[Payload] = self._lines(batch) if self._has_lines else [b""] * count
        if self._id_prefix:
            lines = self._with_ids(subjects, lines, payloads)
        self.numbers = numbers or range(self.number, self.number + count)
        self.number += count
        most = self._limits.size_max
        plain = type(subjects) is list and not self._has_lines
        if plain and all(type(each) is bytes and len(each) <= most for each in payloads):
            return Rows(subjects, lines, payloads)  # type: ignore[arg-type]
        return self._sorted_out(subjects, lines, payloads)

    def _sorted_out(
        self, subjects: Sequence[bytes | None], lines: list[Payload], payloads: list[Payload]
    ) -> Rows:
        good = Rows([], [], [])
        bad: list[BadRow] = []
        most, numbers = self._limits.size_max, []
        for number, subject, own, payload in zip(
            self.numbers, subjects, lines, payloads, strict=True
        ):
            reason = ""
            if (why := self._subjects.complaint(subject)) is not None:
                reason = why
            elif isinstance(own, UnfitValue):
                reason = own
            elif isinstance(payload, UnfitValue):
                reason = payload
            elif len(own) + len(payload) > most:
                size = len(own) + len(payload)
                reason = f"it has {size} bytes; server and stream accept {most} with headers"
            else:
                assert subject is not None
                good.subjects.append(subject)
                good.lines.append(own)
                good.payloads.append(payload)
                numbers.append(number)
                continue
            bad.append(
                BadRow(
                    str(number),
                    subject or b"",
                    b"" if isinstance(own, UnfitValue) else own,
                    b"" if isinstance(payload, UnfitValue) else payload,
                    reason,
                )
            )
        self.numbers = numbers
        if bad:
            self._on_bad(bad)
        return good

    def _lines(self, batch: pa.RecordBatch) -> list[Payload]:
        layout, count = self._layout, batch.num_rows
        nothing: list[Any] = [None] * count
        headers, ids, ttls = (
            batch.column(at).to_pylist() if at >= 0 else nothing
            for at in (layout.headers, layout.message_id, layout.ttl)
        )
        if layout.headers < 0 and layout.message_id < 0 and layout.ttl < 0:
            return [self._schema_line] * count
        made: list[Payload] = []
        for index in range(count):
            try:
                made.append(self._schema_line + _block(headers[index], ids[index], ttls[index]))
            except ProtocolError as error:
                made.append(UnfitValue(f"its headers cannot be written: {error}"))
        return made

    def _with_ids(
        self, subjects: Sequence[bytes | None], lines: list[Payload], payloads: list[Payload]
    ) -> list[Payload]:
        """The lines with an id for each row: its place, and what it is.

        Another row may come to the same place, where a batch runs again in other partitions. By its place
        alone it would be dropped for the one that is stored, and be lost.
        """
        made: list[Payload] = []
        front = f"Nats-Msg-Id: {self._id_prefix}".encode()
        number = self.number
        for subject, own, payload in zip(subjects, lines, payloads, strict=True):
            number += 1
            if subject is None or isinstance(own, UnfitValue) or isinstance(payload, UnfitValue):
                made.append(own)  # it makes no message
                continue
            what = digest_of(subject, own, payload).encode()
            made.append(b"%b%b%d:%b\r\n" % (own, front, number - 1, what))
        return made


def digest_of(subject: bytes, lines: bytes, payload: bytes) -> str:
    """Tells rows from each other that come to the same place."""
    front = b"%b %d %b" % (subject, len(lines), lines)
    if len(payload) <= _COPIED_MAX:
        return blake2b(front + payload, digest_size=_DIGEST_BYTES).hexdigest()
    chain = blake2b(front, digest_size=_DIGEST_BYTES)
    chain.update(payload)
    return chain.hexdigest()


def _block(headers: Any, message_id: str | None, ttl: str | int | None) -> bytes:
    """The header lines of one row. Raises ProtocolError."""
    pairs = [pair for pair in _pairs(headers) if not pair[0].lower().startswith(_NOT_A_ROWS)]
    if message_id is not None:
        if not message_id.strip():
            raise ProtocolError("the message id is empty")
        pairs.append(("Nats-Msg-Id", message_id))
    if ttl is not None:
        text = str(ttl).strip()
        if not _TTL.fullmatch(text):
            raise ProtocolError(f"ttl {text!r} is neither never, seconds nor a duration as 1h30m")
        pairs.append(("Nats-TTL", text))
    return encode_headers(pairs)[_FRONT:-2] if pairs else b""


def _pairs(headers: Any) -> Iterable[tuple[str, str]]:
    """Header pairs of a map (Arrow gives pairs) or of Kafka's list of structs."""
    for each in headers or ():
        name, value = (each["key"], each["value"]) if isinstance(each, dict) else each
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, bytes):
                one = one.decode(errors="surrogateescape")
            yield name, one or ""


class _Subjects:
    """The subjects of rows, and whether the stream takes them."""

    def __init__(self, template: Template | None, layout: Layout, limits: Limits) -> None:
        patterns, reserved = limits.subjects, limits.reserved.encode()
        names = dict(layout.template)
        self._template = template and template._replace(
            parts=tuple(names.get(p, p) if i % 2 else p for i, p in enumerate(template.parts))
        )
        self._column = layout.subject
        self._takes = SubjectFilter([pattern.encode() for pattern in patterns]).matches
        self._shown = ", ".join(patterns)
        self._is_reserved = SubjectFilter([reserved]).matches
        made = template.pattern().encode() if template is not None else b">"
        # Then a subject is good wherever there is one.
        self._is_safe = not overlaps(made, reserved) and any(
            is_subset(made, pattern.encode()) for pattern in patterns
        )
        self._known: dict[bytes, bool] = {}

    def of(self, batch: pa.RecordBatch) -> list[bytes] | tuple[bytes | None, ...]:
        """A list if all of them are good; otherwise a tuple, to be asked about one by one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        template = self._template
        if template is not None and (literal := template.literal) is not None:
            whole = [literal.encode()] * batch.num_rows
            return whole if self._is_safe else tuple(whole)
        column = (
            template.render(batch) if template is not None else batch.column(self._column)
        ).cast(pa.binary())
        made: list[bytes] = column.to_pylist()
        if column.null_count == 0:
            different = () if self._is_safe else pc.unique(column).to_pylist()
            if all(self._is_good(subject) for subject in different):
                return made
        return tuple(made)

    def complaint(self, subject: bytes | None) -> str | None:
        """Why there can be no message on this subject; None if there can."""
        if subject is None:
            if self._template is not None:
                return self._template.complaint
            return "its subject is null"
        if self._is_good(subject):
            return None
        shown = subject.decode(errors="backslashreplace")
        if not is_valid_subject(subject):
            return f"{shown!r} is no subject"
        if self._is_reserved(subject):
            return f"{shown!r} is where sinks keep their markers"
        return f"the stream does not have the subject {shown!r}; it has {self._shown}"

    def _is_good(self, subject: bytes) -> bool:
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= _KNOWN_SUBJECTS_MAX:
                self._known.clear()
            known = (
                is_valid_subject(subject)
                and self._takes(subject)
                and not self._is_reserved(subject)
            )
            self._known[subject] = known
        return known
