"""The little of tar that a backup needs: regular files, names in extended headers, sizes of any length."""

from __future__ import annotations

from typing import Final

from .contents import SnapshotFormatError

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)

FILE: Final = "0"
EXTENDED: Final = "x"

_SUM: Final = slice(148, 156)
_NAME_MAX: Final = 100
_DIGITS_MAX: Final = 19  # of a 64-bit number


def padding(size: int) -> int:
    """How many bytes follow a file of this size, before the next header."""
    return -size % BLOCK


def header(name: str, size: int, modified_s: int) -> bytes:
    """What comes before a file, with an extended header if its name is long."""
    encoded = name.encode()
    if len(encoded) <= _NAME_MAX and size < 8**11:
        return _header(encoded, size, modified_s, FILE)
    fields = _field(b"path", encoded) + _field(b"size", b"%d" % size)
    extended = _header(b"PaxHeaders.0/long", len(fields), modified_s, EXTENDED)
    short = _header(encoded[:_NAME_MAX], size % 8**11, modified_s, FILE)
    return extended + fields + bytes(padding(len(fields))) + short


def _header(name: bytes, size: int, modified_s: int, kind: str) -> bytes:
    block = bytearray(BLOCK)
    block[: len(name)] = name
    block[100:108] = b"0000600\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % size
    block[136:148] = b"%011o\0" % modified_s
    block[_SUM] = b" " * 8
    block[156] = ord(kind)
    block[257:265] = b"ustar\x0000"
    block[_SUM] = b"%06o\0 " % sum(block)
    return bytes(block)


def _field(key: bytes, value: bytes) -> bytes:
    """``<its own length> key=value``."""
    rest = b" %b=%b\n" % (key, value)
    size = len(rest) + 1
    while size != len(rest) + len(b"%d" % size):
        size = len(rest) + len(b"%d" % size)
    return b"%d%b" % (size, rest)


def read_header(block: bytes) -> tuple[str, int, str]:
    """Name, size and kind of what follows. Raises SnapshotFormatError."""
    stored, blanked = block[_SUM], block[:148] + b" " * 8 + block[156:]
    if _octal(stored) != sum(blanked):
        raise SnapshotFormatError("the checksum of a tar header is wrong")
    name = block[:100].rstrip(b"\0")
    prefix = block[345:500].rstrip(b"\0") if block[257:262] == b"ustar" else b""
    whole = prefix + b"/" + name if prefix else name
    kind = chr(block[156]) if block[156] else FILE
    return whole.decode(errors="replace"), _number(block[124:136]), kind


def read_extended(fields: bytes) -> dict[str, str]:
    """The fields of an extended header. Raises SnapshotFormatError."""
    found: dict[str, str] = {}
    at = 0
    while at < len(fields):
        digits, _, _ = fields[at : at + _DIGITS_MAX + 1].partition(b" ")
        size = decimal(digits, "a length")
        if not 0 < size <= len(fields) - at:
            raise SnapshotFormatError("an extended tar header is damaged")
        key, _, value = fields[at + len(digits) + 1 : at + size - 1].partition(b"=")
        found[key.decode(errors="replace")] = value.decode(errors="replace")
        at += size
    return found


def decimal(digits: bytes, what: str) -> int:
    """A number in decimal digits. Raises SnapshotFormatError, in which ``what`` names it."""
    if not digits.isdigit() or len(digits) > _DIGITS_MAX:
        raise SnapshotFormatError(f"{what} in the tar is no number: {digits[:40]!r}")
    return int(digits)


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # too large for octal digits
        return int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
    return _octal(field)


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if any(byte not in b"01234567" for byte in digits):
        raise SnapshotFormatError("a tar header is damaged")
    return int(digits or b"0", 8)
