"""The segment file: a header, records, and once sealed a footer that spares reading them.

::

    0          2048       4096                       data_end
    ┌──────────┬──────────┬─────────┬─────────┬─ ─ ─┬────────────────────┬─────────┬─────────┐
    │ header   │ the same │ record  │ record  │     │ arrays             │ summary │ trailer │
    │          │ again    │         │         │     │ (loaded on demand) │         │ 40 bytes│
    └──────────┴──────────┴─────────┴─────────┴─ ─ ─┴────────────────────┴─────────┴─────────┘

The header is there twice, so that one bad bit does not cost the salt and with it every record. Header,
arrays, summary and trailer each carry a CRC-32. A footer that is missing or damaged costs time, not
messages: the records are read instead.

- arrays: per message offset u32, size u32, subject number u32, timestamp i64, and in compacted segments
  the sequence relative to the base u32.
- summary: what opening a stream needs: counts, the last sequence and time, each subject with its count,
  first and last, the removals recorded in this file, and when which messages expire by themselves.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from typing import Final, NamedTuple
from zlib import crc32

from .expiries import Expiries
from .version import STORE_FORMAT, is_known, refused

HEADER_BYTES: Final = 4096
_COPY_BYTES: Final = HEADER_BYTES // 2
_MAGIC: Final = b"HRSEGMNT"
_HEADER: Final = struct.Struct("<8sHHIQQqB")
_SUMMARY: Final = struct.Struct("<QQQqqIIIB")
_TRAILER: Final = struct.Struct("<8sQQIIII")
_TRAILER_MAGIC: Final = b"HRFOOTER"
TRAILER_BYTES: Final = _TRAILER.size
_U32: Final = struct.Struct("<I")
_SPARSE: Final = 1
_EXPIRIES: Final = 2
_BARE: Final = 4


class Header(NamedTuple):
    """Who a segment file belongs to. ``salt`` seeds the checksum of its records.

    ``jump`` says that ``base`` does not follow from the records before, because some were lost. Apart
    from that, a gap between two files with successive serials means that the first one is torn.
    ``compacted`` says that sequences missing in between were removed. ``tells`` says that it was written
    by a version which records the removal of whole segments: a gap that no record speaks of is a loss.
    """

    name: str
    salt: int
    serial: int
    base: int
    created_ns: int
    jump: bool
    compacted: bool = False
    tells: bool = False


def encode_header(header: Header) -> bytes:
    """The first HEADER_BYTES of a segment file. The name must fit: 1,000 bytes of UTF-8."""
    name = header.name.encode()
    body = _HEADER.pack(
        _MAGIC,
        STORE_FORMAT,
        len(name),
        header.salt,
        header.serial,
        header.base,
        header.created_ns,
        header.jump | header.compacted << 1 | header.tells << 2,
    )
    body += name
    copy = (body + _U32.pack(crc32(body))).ljust(_COPY_BYTES, b"\0")
    return copy + copy


def decode_header(data: bytes, path: str) -> tuple[Header | None, bool]:
    """The header, or None if neither copy is whole; and whether a copy is damaged.

    Raises StoreFormatError when the file was written by a version this one cannot read.
    """
    copies = [_decode_copy(data[at : at + _COPY_BYTES]) for at in (0, _COPY_BYTES)]
    whole = [copy for copy in copies if isinstance(copy, Header)]
    if whole:
        return whole[0], len(whole) < 2
    versions = {copy for copy in copies if isinstance(copy, int)}
    if len(versions) == 1 and len({copies[0], copies[1]}) == 1:
        raise refused(path, versions.pop())
    return None, True


def _decode_copy(data: bytes) -> Header | int | None:
    """A header; the version number if it is one we do not know; None if damaged."""
    if len(data) < _HEADER.size or data[:8] != _MAGIC:
        return None
    _, version, name_len, salt, serial, base, created_ns, flags = _HEADER.unpack_from(data)
    if not is_known(version):
        return int(version)
    stop = _HEADER.size + name_len
    if stop + 4 > len(data) or _U32.unpack_from(data, stop)[0] != crc32(data[:stop]):
        return None
    try:
        name = data[_HEADER.size : stop].decode()
    except UnicodeDecodeError:
        return None
    said = (bool(flags & bit) for bit in (1, 2, 4))
    return Header(name, salt, serial, base, created_ns, *said)


class Summary(NamedTuple):
    """What a footer says of its segment; per subject: name, count, first and last relative sequence."""

    messages: int
    last_seq: int  # of the stream when this was written, messages or not
    nbytes: int
    last_ns: int
    max_ns: int
    end_rel: int  # the last message's relative sequence, -1 if there is none
    subjects: list[tuple[bytes, int, int, int]]
    removals: list[tuple[int, int]]
    sparse: bool
    expiries: Expiries | None = None
    bare: bool = False  # whether it is known that no message has headers


class Footer(NamedTuple):
    """Where a footer's parts lie, from its trailer."""

    data_end: int
    summary_at: int
    summary_len: int
    arrays_crc: int
    summary_crc: int


def encode_footer(
    data_end: int,
    last_seq: int,
    arrays: tuple[array[int], array[int], array[int], array[int], array[int] | None],
    names: list[bytes],
    removals: list[tuple[int, int]],
    expiries: Expiries | None = None,
    *,
    bare: bool = False,
) -> bytes:
    """The footer of a sealed segment.

    ``arrays`` are offsets, sizes, subject ids, timestamps and relative sequences (None: 0, 1, 2…);
    ``names`` gives the subject of an id.
    """
    offsets, sizes, sids, stamps, rel = arrays
    counts = Counter(sids)
    local = {sid: number for number, sid in enumerate(counts)}
    firsts, lasts = _extremes(sids, rel)
    block = b"".join(
        (
            offsets.tobytes(),
            sizes.tobytes(),
            array("I", map(local.__getitem__, sids)).tobytes(),
            stamps.tobytes(),
            b"" if rel is None else rel.tobytes(),
        )
    )
    end_rel = -1 if not sids else len(sids) - 1 if rel is None else rel[-1]
    summary = b"".join(
        (
            _SUMMARY.pack(
                len(sids),
                last_seq,
                sum(sizes),
                stamps[-1] if stamps else 0,
                max(stamps, default=0),
                end_rel & 0xFFFFFFFF,
                len(local),
                len(removals),
                (rel is not None) * _SPARSE | bool(expiries) * _EXPIRIES | bare * _BARE,
            ),
            array("I", [counts[sid] for sid in local]).tobytes(),
            array("I", [firsts[sid] for sid in local]).tobytes(),
            array("I", [lasts[sid] for sid in local]).tobytes(),
            array("H", [len(names[sid]) for sid in local]).tobytes(),
            array("Q", [end for pair in removals for end in pair]).tobytes(),
            *(names[sid] for sid in local),
            _encode_expiries(expiries),
        )
    )
    trailer = _TRAILER.pack(
        _TRAILER_MAGIC,
        data_end,
        data_end + len(block),
        len(summary),
        crc32(block),
        crc32(summary),
        0,
    )
    trailer = trailer[:-4] + _U32.pack(crc32(trailer[:-4]))
    return block + summary + trailer


def _encode_expiries(expiries: Expiries | None) -> bytes:
    if not expiries:
        return b""
    return b"".join(
        (_U32.pack(len(expiries)), expiries.rels.tobytes(), expiries.times_ns.tobytes())
    )


def _decode_expiries(data: bytes, at: int) -> Expiries:
    (count,) = _U32.unpack_from(data, at)
    expiries = Expiries()
    middle = at + 4 + 4 * count
    expiries.rels.frombytes(data[at + 4 : middle])
    expiries.times_ns.frombytes(data[middle : middle + 8 * count])
    return expiries


def _extremes(sids: array[int], rel: array[int] | None) -> tuple[dict[int, int], dict[int, int]]:
    """Per subject id the first and the last relative sequence."""
    sequences = range(len(sids)) if rel is None else rel
    lasts = dict(zip(sids, sequences, strict=True))
    firsts = dict(zip(reversed(sids), reversed(sequences), strict=True))
    return firsts, lasts


def decode_trailer(data: bytes, size: int) -> Footer | None:
    """The footer's parts from the last TRAILER_BYTES of a file of ``size`` bytes, if it is whole."""
    if len(data) != TRAILER_BYTES or data[:8] != _TRAILER_MAGIC:
        return None
    _, data_end, summary_at, summary_len, arrays_crc, summary_crc, crc = _TRAILER.unpack(data)
    if crc != crc32(data[:-4]) or summary_at + summary_len + TRAILER_BYTES != size:
        return None
    return Footer(data_end, summary_at, summary_len, arrays_crc, summary_crc)


def decode_summary(data: bytes, footer: Footer) -> Summary | None:
    """The summary, or None if it is damaged."""
    if crc32(data) != footer.summary_crc or len(data) < _SUMMARY.size:
        return None
    messages, last_seq, nbytes, last_ns, max_ns, end_rel, n_subjects, n_removals, flags = (
        _SUMMARY.unpack_from(data)
    )
    at = _SUMMARY.size
    columns = []
    for typecode, count in (
        ("I", n_subjects),
        ("I", n_subjects),
        ("I", n_subjects),
        ("H", n_subjects),
        ("Q", 2 * n_removals),
    ):
        column = array(typecode)
        stop = at + column.itemsize * count
        column.frombytes(data[at:stop])
        columns.append(column)
        at = stop
    counts, firsts, lasts, lengths, flat = columns
    subjects = []
    for count, first, last, length in zip(counts, firsts, lasts, lengths, strict=True):
        subjects.append((data[at : at + length], count, first, last))
        at += length
    removals = list(zip(flat[::2], flat[1::2], strict=True))
    end_rel = -1 if not messages else end_rel
    expiries = _decode_expiries(data, at) if flags & _EXPIRIES else None
    sparse = bool(flags & _SPARSE)
    return Summary(
        messages,
        last_seq,
        nbytes,
        last_ns,
        max_ns,
        end_rel,
        subjects,
        removals,
        sparse,
        expiries,
        bool(flags & _BARE),
    )


def decode_arrays(
    data: bytes, footer: Footer, messages: int, sparse: bool
) -> tuple[array[int], array[int], array[int], array[int], array[int] | None] | None:
    """Offsets, sizes, subject numbers, timestamps, relative sequences; None if damaged."""
    if crc32(data) != footer.arrays_crc:
        return None
    columns: list[array[int]] = []
    at = 0
    for typecode in "IIIqI" if sparse else "IIIq":
        column: array[int] = array(typecode)
        stop = at + column.itemsize * messages
        column.frombytes(data[at:stop])
        columns.append(column)
        at = stop
    offsets, sizes, sids, stamps = columns[:4]
    return offsets, sizes, sids, stamps, columns[4] if sparse else None
