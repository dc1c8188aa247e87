"""Header blocks: ``NATS/1.0[ status[ description]]``, ``Name: value`` lines, an empty line.

A block stays raw ``bytes`` as long as possible. ``header_value`` and ``status_of`` read from one
without parsing it; ``add_header`` and ``remove_header`` change one; ``parse_headers`` returns a
``Headers`` object. Names are compared exactly, case included, as NATS does. Names and values are UTF-8;
other bytes survive a round trip as surrogate escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, final

from ..errors import ProtocolError

EMPTY_BLOCK: Final = b"NATS/1.0\r\n\r\n"

_VERSION: Final = b"NATS/1.0"
_NOBODY: Final = b"NATS/1.0 503"
_STATUS_LINE: Final = re.compile(rb"NATS/1\.0(?:[ \t]+([0-9]{3})(?:[ \t]+([^\r\n]*))?)?[ \t]*")
# Surrogates that do not stand for undecodable bytes; they cannot be encoded.
_NO_TEXT: Final = r"\ud800-\udc7f\udd00-\udfff"
_BAD_NAME: Final = re.compile(rf"[\x00-\x20\x7f:{_NO_TEXT}]")
_BAD_VALUE: Final = re.compile(rf"[\r\n{_NO_TEXT}]")


@final
class Headers:
    """The headers of a message: an ordered multi-map from name to values.

    Attributes:
        status: the status code of a message from the server, such as 503; None for other messages.
        description: the text after the status, often empty.
    """

    __slots__ = ("_pairs", "description", "status")

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]] = (),
        *,
        status: int | None = None,
        description: str = "",
    ) -> None:
        self._pairs = tuple(pairs)
        self.status = status
        self.description = description

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of ``name``."""
        for key, value in self._pairs:
            if key == name:
                return value
        return default

    def get_all(self, name: str) -> list[str]:
        """All values of ``name``, in order."""
        return [value for key, value in self._pairs if key == name]

    def items(self) -> Iterator[tuple[str, str]]:
        """All pairs in order, including repeated names."""
        return iter(self._pairs)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self._pairs)

    def __iter__(self) -> Iterator[str]:
        """The names in order, each once."""
        return iter(dict.fromkeys(key for key, _ in self._pairs))

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self._pairs)

    def __bool__(self) -> bool:
        return bool(self._pairs) or self.status is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Headers):
            return NotImplemented
        return (
            self._pairs == other._pairs
            and self.status == other.status
            and self.description == other.description
        )

    def __hash__(self) -> int:
        return hash((self._pairs, self.status, self.description))

    def __repr__(self) -> str:
        status = f", status={self.status}, description={self.description!r}" if self.status else ""
        return f"Headers({list(self._pairs)!r}{status})"


def parse_headers(block: bytes) -> Headers:
    """Parse a raw block; ``b""`` has no headers. Raises ProtocolError if it is malformed.

    Spaces and tabs around values are stripped. Lines may end in LF alone, as NATS accepts.
    """
    if not block:
        return Headers()
    lines = block.replace(b"\r\n", b"\n").split(b"\n")
    first = _STATUS_LINE.fullmatch(lines[0])
    if first is None:
        raise _malformed(f"header block starts with {lines[0][:64]!r}, expected 'NATS/1.0'")
    if len(lines) < 3 or lines[-1] or lines[-2]:
        raise _malformed("header block does not end with an empty line")
    pairs = []
    for number, line in enumerate(lines[1:-2], 2):
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise _malformed(f"header line {number} is {line[:64]!r}, expected 'Name: value'")
        pairs.append((_text(name), _text(value.strip(b" \t"))))
    code, description = first.groups()
    return Headers(
        pairs,
        status=None if code is None else int(code),
        description=_text((description or b"").strip(b" \t")),
    )


def encode_headers(
    pairs: Iterable[tuple[str, str]], status: int | None = None, description: str = ""
) -> bytes:
    """Encode a header block. Raises ProtocolError for headers that would not survive a round trip.

    These are: a name that is empty or has whitespace, control characters or a colon; a value or
    description with a line break; a lone surrogate anywhere; a status without exactly three digits.
    """
    lines = [_VERSION.decode()]
    if status is not None:
        if not 100 <= status <= 999:
            raise _malformed(f"status {status} has not three digits")
        check_value("status description", description)
        lines[0] += f" {status:d} {description}" if description else f" {status:d}"
    for name, value in pairs:
        _check_pair(name, value)
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode(errors="surrogateescape")


def status_block(code: int, text: str, pairs: Iterable[tuple[str, str]] = ()) -> bytes:
    """The header block of a status message, such as ``NATS/1.0 408 Request Timeout``."""
    return encode_headers(pairs, code, text)


def status_of(block: bytes) -> int | None:
    """The status code of a raw block, or None; does not parse the rest."""
    if block[8:9] != b" " or not block.startswith(_VERSION):
        return None
    digits = block[9:12]
    return int(digits) if len(digits) == 3 and digits.isdigit() else None


def says_nobody(block: bytes, payload: bytes) -> bool:
    """Whether a server says, in place of an answer, that nobody listens on the subject.

    It has no payload: what has one is somebody's answer, whatever status that gives.
    """
    return not payload and block.startswith(_NOBODY)


def header_value(block: bytes, name: bytes) -> bytes | None:
    """The first value of ``name`` in a raw block, or None; does not parse the rest."""
    at = block.find(b"\n%b:" % name)
    if at < 0:
        return None
    start = at + len(name) + 2
    end = block.find(b"\n", start)
    return block[start : end if end >= 0 else len(block)].strip(b" \t\r")


def add_header(block: bytes, name: bytes, value: bytes) -> bytes:
    """``block`` (or ``b""``) with one more line; name and value must be valid."""
    return b"%b%b: %b\r\n\r\n" % ((block or EMPTY_BLOCK)[:-2], name, value)


def remove_header(block: bytes, name: bytes) -> bytes:
    """``block`` without the lines of ``name``; ``b""`` if only the version is left."""
    needle = b"\n%b:" % name
    at = block.find(needle)
    while at >= 0:
        block = block[: at + 1] + block[block.find(b"\n", at + 1) + 1 :]
        at = block.find(needle)
    return b"" if block == EMPTY_BLOCK else block


def _check_pair(name: str, value: str) -> None:
    bad = _BAD_NAME.search(name)
    if not name or bad is not None:
        what = "is empty" if bad is None else f"has {bad.group()!r}"
        raise _malformed(
            f"header name {name!r} {what}: accepted is text without whitespace, controls and colons"
        )
    check_value(f"value of header {name!r}", value)


def check_value(what: str, value: str) -> None:
    """Raises ProtocolError: this cannot be the value of a header."""
    bad = _BAD_VALUE.search(value)
    if bad is not None:
        if bad.group() in "\r\n":
            raise _malformed(
                f"{what} has {bad.group()!r}, a line break: accepted is text on one line, as "
                "' '.join(text.split()) makes it"
            )
        raise _malformed(f"{what} has {bad.group()!r}: accepted is text on one line")


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(what, wire_text="Parser Error")
