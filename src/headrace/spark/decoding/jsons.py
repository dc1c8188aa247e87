"""JSON payloads, a whole chunk in one call of Arrow's reader.

What that reader refuses is looked for in smaller pieces, and in the end document by document: there a field
that does not fit becomes null and is rescued, and the others stay. A document decodes to the same row
whatever it was in one chunk with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from ...schemas.errors import UnfitError
from .decoded import Decoded, shown
from .misfits import Misfit
from .values import Constant, Fit, MinusZero, fit_for

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS: Final = 500  # of a chunk with a misfit, so many documents are tried together
_BLOCK_BYTES_MIN: Final = 1024
_JSON_SPACE: Final = b" \t\r\n"
_JSON_SPACE_TEXT: Final = _JSON_SPACE.decode()


class JsonFormat:
    """Decodes documents into the fields of ``schema``; other fields are ignored.

    Attributes:
        one_by_one: how many documents Arrow's reader did not decode.
    """

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._schema = schema
        self._readable = _readable(schema)
        self._fits: list[tuple[str, Fit]] = [(field.name, fit_for(field.type)) for field in schema]
        self._has_floats = any(_has(pa.types.is_floating, field.type) for field in schema)
        self._has_times = any(_has(pa.types.is_timestamp, field.type) for field in schema)
        self._texts = {
            field.name: field.type for field in schema if _has(pa.types.is_string, field.type)
        }
        self._how = _EXACT if any(_has(pa.types.is_decimal, one.type) for one in schema) else _QUICK
        self._any: JsonFormat | None = None
        self.one_by_one = 0

    def decode(self, payloads: list[bytes], headers: list[bytes]) -> Decoded:
        import pyarrow as pa

        columns = self.decode_together(pa.array(payloads, pa.binary()))
        if columns is not None:
            return Decoded(columns, None, {})
        pieces: list[Sequence[pa.Array]] = []
        misfits: dict[int, Misfit] = {}
        for begin in range(0, len(payloads), PIECE_ROWS):
            piece = payloads[begin : begin + PIECE_ROWS]
            columns = None
            if len(piece) < len(payloads):
                columns = self.decode_together(pa.array(piece, pa.binary()))
            if columns is None:
                columns = self._one_by_one(piece, begin, misfits)
            pieces.append(columns)
        merged = [pa.concat_arrays(list(parts)) for parts in zip(*pieces, strict=True)]
        return Decoded(merged, None, misfits)

    def decode_together(self, payloads: pa.BinaryArray) -> list[pa.Array] | None:
        """The columns of documents of which none is out of the ordinary; None if one is."""
        import pyarrow as pa
        import pyarrow.json

        if not len(payloads):
            return [pa.array([], field.type) for field in self._schema]
        if self._readable is None:
            return None
        # If each begins with { and ends with }, no boundary of payloads can be inside a document: after a }
        # JSON wants a comma or an end, and a line break ends a string. So as many rows as payloads means
        # one for each.
        if not _all_objects(payloads):
            payloads = pa.array(
                [each.strip(_JSON_SPACE) for each in payloads.to_pylist()], pa.binary()
            )
            if not _all_objects(payloads):
                return None
        try:
            payloads.cast(pa.string())  # Arrow's reader does not look whether it is UTF-8
            text = _in_lines(payloads)
            table = pyarrow.json.read_json(
                pa.BufferReader(text),
                read_options=pyarrow.json.ReadOptions(
                    use_threads=False, block_size=max(text.size + 1, _BLOCK_BYTES_MIN)
                ),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self._readable,
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
            if table.num_rows != len(payloads):
                return None
            if (self._has_floats or self._has_times) and any(map(_is_odd, table.columns)):
                return None
            if self._readable is not self._schema:
                table = table.cast(self._schema)
        except pa.ArrowInvalid:
            return None
        return [_one_array(column) for column in table.columns]

    def _one_by_one(
        self, payloads: list[bytes], first: int, misfits: dict[int, Misfit]
    ) -> list[pa.Array]:
        import pyarrow as pa

        self.one_by_one += len(payloads)
        rows: list[list[Any]] = []
        for number, payload in enumerate(payloads, first):
            values, misfit = self._decode_one(payload)
            rows.append(values)
            if misfit is not None:
                misfits[number] = misfit
        columns = zip(*rows, strict=True)
        return [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]

    def _decode_one(self, payload: bytes) -> tuple[list[Any], Misfit | None]:
        try:
            text = payload.decode()
            has_minus_zero = self._has_floats and _MINUS_ZERO.search(text)
            found = _loads(text, _OF_ANY_NUMBER if has_minus_zero else self._how)
        except RecursionError:
            found = self._wanted(payload)
        except ValueError:
            found = None
        if found is None:
            if (alone := self._alone(payload)) is not None:
                return alone, None
            return self._whole_misfit(payload, f"not a JSON document: {shown(payload)}")
        if not isinstance(found, dict):
            return self._whole_misfit(payload, f"not a JSON object: {shown(payload)}")
        values: list[Any] = []
        rescued: list[str] = []
        texts: _Texts | None = None
        for name, fit in self._fits:
            value = found.get(name)
            try:
                values.append(fit(value))
            except (UnfitError, RecursionError):
                if texts is None:
                    texts = _Texts(text)
                try:
                    values.append(fit(self._with_text(name, value, texts)))
                except (UnfitError, RecursionError):
                    values.append(None)
                    rescued.append(name)
        if texts is None or not rescued:
            return values, None
        if (alone := self._alone(payload)) is not None:
            return alone, None
        reason = (
            f"field {rescued[0]!r} is no {self._schema.field(rescued[0]).type}: {shown(payload)}"
        )
        members = texts.members
        kept = [f"{json.dumps(name, ensure_ascii=False)}:{members[name]}" for name in rescued]
        return values, Misfit(reason, "{" + ",".join(kept) + "}")

    def _with_text(self, name: str, value: Any, texts: _Texts) -> Any:
        """The field's value, with JSON's text where text is wanted. Raises UnfitError, RecursionError."""
        import pyarrow as pa

        kind = self._texts.get(name)
        if kind is None or value is _TOO_DEEP:
            raise UnfitError
        if isinstance(value, bool | int | float | Decimal) and pa.types.is_string(kind):
            return json.dumps(value) if isinstance(value, bool) else texts.of_number(name, value)
        return _with_text(texts.members[name], kind)

    def _wanted(self, payload: bytes) -> dict[str, Any] | None:
        """The fields that are wanted of a document nested deeper than Python reads; None if it is none."""
        import pyarrow as pa

        if self._any is None:
            self._any = JsonFormat(pa.schema([("", pa.string())]))
        if self._any.decode_together(pa.array([payload], pa.binary())) is None:
            return None
        members = _members(payload.decode())
        return {name: _or_too_deep(members[name]) for name, _ in self._fits if name in members}

    def _alone(self, payload: bytes) -> list[Any] | None:
        """The values of a document that only Arrow's reader accepts; None if it does not."""
        import pyarrow as pa

        columns = self.decode_together(pa.array([payload], pa.binary()))
        try:
            return None if columns is None else [column[0].as_py() for column in columns]
        except (OverflowError, ValueError):
            return None  # a time that Python does not have

    def _whole_misfit(self, payload: bytes, reason: str) -> tuple[list[Any], Misfit]:
        text = payload.decode(errors="backslashreplace")
        return [None] * len(self._fits), Misfit(reason, text)


class _Texts:
    """What stands in a document that is an object, byte for byte; looked for once, if at all."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._members: dict[str, str] | None = None
        self._numbers: dict[str, Any] | None = None

    @property
    def members(self) -> dict[str, str]:
        """Of each field."""
        if self._members is None:
            self._members = _members(self._text)
        return self._members

    def of_number(self, name: str, value: float | Decimal) -> str:
        """Of a field that is this number."""
        if type(value) is int and value:
            return str(value)  # JSON has one way to write it; of 0 it has two
        if self._numbers is None:
            try:
                self._numbers = _NUMBERS_AS_TEXT.decode(self._text)
            except RecursionError:
                self._numbers = self.members
        return str(self._numbers[name])


def _loads(text: str, how: json.JSONDecoder) -> Any:
    """A JSON value. Raises ValueError, RecursionError."""
    try:
        return how.decode(text)
    except (ValueError, InvalidOperation):  # perhaps by a number that Python does not make
        return _OF_ANY_NUMBER.decode(text)


def _number(text: str) -> int | Decimal:
    if text == "-0":
        return MinusZero()
    try:
        return int(text)
    except ValueError:  # no whole number, or one of very many digits
        pass
    try:
        return Decimal(text)
    except InvalidOperation:  # by its exponent
        return Decimal("Infinity" if float(text) else 0)


_MINUS_ZERO: Final = re.compile(r"-0[^0-9.]")
_QUICK: Final = json.JSONDecoder(parse_constant=Constant)
_EXACT: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=Constant)
_OF_ANY_NUMBER: Final = json.JSONDecoder(
    parse_float=_number, parse_int=_number, parse_constant=Constant
)
_NUMBERS_AS_TEXT: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_TOO_DEEP: Final = object()


def _or_too_deep(text: str) -> Any:
    try:
        return _OF_ANY_NUMBER.decode(text)
    except RecursionError:
        return _TOO_DEEP  # fits nothing


_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
_KEY: Final = re.compile(r'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:', re.DOTALL)


def _parts(text: str) -> Iterator[str]:
    """The texts between the commas of a valid object or list, however deep it is."""
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("{", "["):
            depth += 1
            if depth == 1:
                begin = token.end()
        elif depth == 1 and sign in (",", "}", "]"):
            yield text[begin : token.start()].strip(_JSON_SPACE_TEXT)
            begin = token.end()
        if sign in ("}", "]"):
            depth -= 1


def _members(text: str) -> dict[str, str]:
    """The texts of an object's fields, byte for byte."""
    found = {}
    for part in _parts(text):
        if key := _KEY.match(part):
            found[json.loads(key[1])] = part[key.end() :].strip(_JSON_SPACE_TEXT)
    return found


def _with_text(text: str, kind: pa.DataType) -> Any:
    """A value whose parts are their JSON texts where a type has text."""
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind) and text[:1] != '"' and text != "null":
        return text
    if types.is_struct(kind) and text[:1] == "{":
        members = _members(text)
        return {
            one.name: _with_text(members[one.name], one.type) for one in kind if one.name in members
        }
    if types.is_list(kind) and text[:1] == "[":
        return [_with_text(part, kind.value_type) for part in _parts(text) if part]
    if types.is_map(kind) and text[:1] == "{":
        return {key: _with_text(part, kind.item_type) for key, part in _members(text).items()}
    return _OF_ANY_NUMBER.decode(text)


def _all_objects(payloads: pa.BinaryArray) -> bool:
    """Whether each begins and ends as a JSON object does."""
    import pyarrow.compute as pc

    braces = pc.and_(pc.starts_with(payloads, b"{"), pc.ends_with(payloads, b"}"))
    whole: bool = pc.all(braces).as_py()
    return whole


def _in_lines(payloads: pa.BinaryArray) -> pa.Buffer:
    """All of them, separated by line feeds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    together = pa.ListArray.from_arrays(pa.array([0, len(payloads)], pa.int32()), payloads)
    return pc.binary_join(together, b"\n")[0].as_buffer()


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _readable(schema: pa.Schema) -> pa.Schema | None:
    """The schema as Arrow's reader knows it; None if it has a type that the reader does not know.

    Dates are read as text: the reader takes only numbers for them.
    """
    import pyarrow as pa

    if any(_is_unknown(field.type) for field in schema):
        return None
    readable = pa.schema([_readable_field(field) for field in schema])
    return schema if readable == schema else readable


def _is_unknown(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return True
    return any(_is_unknown(kind.field(i).type) for i in range(kind.num_fields))


def _readable_field(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_date(kind):
        return field.with_type(pa.string())
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_readable_field(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_readable_field(one) for one in kind]))
    return field


def _has(is_one: Callable[[Any], bool], kind: pa.DataType) -> bool:
    """Whether a type is one, or has one in it."""
    return is_one(kind) or any(_has(is_one, kind.field(at).type) for at in range(kind.num_fields))


_FIRST_MICRO: Final = -62_135_596_800_000_000
_LAST_MICRO: Final = 253_402_300_799_999_999


def _is_odd(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether there is in it, however deep, what Arrow's reader makes of values that fit nothing: infinity of
    1e400, and times beyond the years 1 to 9999, to which a zone may lead."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_timestamp(kind):
        least, most = pc.min_max(column.cast(pa.int64())).as_py().values()
        return least is not None and (least < _FIRST_MICRO or most > _LAST_MICRO)
    if pa.types.is_struct(kind):
        return any(map(_is_odd, column.flatten()))
    if pa.types.is_list(kind):
        return _is_odd(pc.list_flatten(column))
    return False
