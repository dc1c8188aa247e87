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

``Expiries`` are when messages of it expire, for those that do: 12 bytes each, in order of their sequence.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from .version import STORE_FORMAT, is_known, refused

NEVER_NS = (1 << 63) - 1
"""The time of a message that outlives every limit of age."""
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
_STEP: Final = 4096  # messages, or subjects, of a footer in one step: half a millisecond
_WRITTEN: Final = 131_072  # values of a column in one piece: half a MiB, or one


def no_expiry(headers: bytes, timestamp_ns: int) -> int:
    """What to ask where messages do not expire by themselves."""
    return NEVER_NS


class Expiries:
    """Times (ns since the epoch) by sequence relative to the segment's base.

    Entries of removed messages stay until the segment is compacted: who asks looks whether the
    message is still there.
    """

    __slots__ = ("rels", "times_ns")

    def __init__(self, rels: array[int] | None = None, times_ns: array[int] | None = None) -> None:
        self.rels: array[int] = rels if rels is not None else array("I")
        self.times_ns: array[int] = times_ns if times_ns is not None else array("q")

    def __len__(self) -> int:
        return len(self.rels)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.rels, self.times_ns, strict=True)

    def add(self, rel: int, time_ns: int) -> None:
        """Note the time of a message beyond all noted before."""
        self.rels.append(rel)
        self.times_ns.append(time_ns)

    def find(self, rel: int) -> int:
        """The time of a message, or 0 if it does not expire by itself."""
        at = bisect_left(self.rels, rel)
        return self.times_ns[at] if at < len(self.rels) and self.rels[at] == rel else 0

    def cut(self, rel: int) -> None:
        """Forget messages from ``rel`` on."""
        at = bisect_left(self.rels, rel)
        del self.rels[at:]
        del self.times_ns[at:]

    def only(self, rels: Iterable[int]) -> Expiries:
        """A copy with the entries of these messages alone."""
        wanted = set(rels)
        kept = Expiries()
        for rel, time_ns in self:
            if rel in wanted:
                kept.add(rel, time_ns)
        return kept

    def copy(self) -> Expiries:
        """One that another thread may read while this one grows."""
        return Expiries(self.rels[:], self.times_ns[:])


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


class Ending(NamedTuple):
    """A footer that is on disk, and the latest timestamp of its segment."""

    footer: Footer
    max_ns: int


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
    return b"".join(footer_steps(data_end, last_seq, arrays, names, removals, expiries, bare=bare))


def footer_steps(
    data_end: int,
    last_seq: int,
    arrays: tuple[array[int], array[int], array[int], array[int], array[int] | None],
    names: list[bytes],
    removals: list[tuple[int, int]],
    expiries: Expiries | None = None,
    *,
    bare: bool = False,
) -> Generator[bytes, None, Ending]:
    """As ``encode_footer``, in pieces, some of them empty: a segment may have a million messages, and none of
    the steps is more than a few milliseconds' work. Returns where its parts lie."""
    offsets, sizes, sids, stamps, rel = arrays
    sequences: Sequence[int] = range(len(sids)) if rel is None else rel
    total, newest = 0, 0
    for part in _slices(len(sids)):
        total += sum(sizes[part])
        newest = max(newest, max(stamps[part]))
        yield b""
    numbers, subjects = yield from _subject_steps(sids, sequences, names)
    columns = (offsets, sizes, numbers, stamps, array("I") if rel is None else rel)
    length, arrays_crc = 0, 0
    for column in columns:
        for part in _slices(len(column), _WRITTEN):
            piece = column[part].tobytes()
            length += len(piece)
            arrays_crc = crc32(piece, arrays_crc)
            yield piece
    end_rel = sequences[-1] if sids else -1
    summary = b"".join(
        (
            _SUMMARY.pack(
                len(sids),
                last_seq,
                total,
                stamps[-1] if stamps else 0,
                newest,
                end_rel & 0xFFFFFFFF,
                len(subjects.columns[0]),
                len(removals),
                (rel is not None) * _SPARSE | bool(expiries) * _EXPIRIES | bare * _BARE,
            ),
            *(column.tobytes() for column in subjects.columns),
            array("Q", [end for pair in removals for end in pair]).tobytes(),
            *subjects.names,
            _encode_expiries(expiries),
        )
    )
    yield summary
    footer = Footer(data_end, data_end + length, len(summary), arrays_crc, crc32(summary))
    trailer = _TRAILER.pack(_TRAILER_MAGIC, *footer, 0)
    yield trailer[:-4] + _U32.pack(crc32(trailer[:-4]))
    return Ending(footer, newest)


class _Subjects(NamedTuple):
    """The subjects of a segment, in the order of their numbers; columns are count, first, last, length."""

    columns: tuple[array[int], array[int], array[int], array[int]]
    names: list[bytes]


def _subject_steps(
    sids: array[int], sequences: Sequence[int], names: list[bytes]
) -> Generator[bytes, None, tuple[array[int], _Subjects]]:
    """The number of each message's subject, and what is told of the subjects."""
    counts: Counter[int] = Counter()
    firsts: dict[int, int] = {}
    lasts: dict[int, int] = {}
    slices = _slices(len(sids))
    for part in slices:
        counts.update(sids[part])
        lasts.update(zip(sids[part], sequences[part], strict=True))
        yield b""
    for part in reversed(slices):
        firsts.update(zip(reversed(sids[part]), reversed(sequences[part]), strict=True))
        yield b""
    local = {sid: number for number, sid in enumerate(counts)}
    numbers = array("I")
    for part in slices:
        numbers.extend(map(local.__getitem__, sids[part]))
        yield b""
    order = list(local)
    found = _Subjects((array("I"), array("I"), array("I"), array("H")), [])
    for part in _slices(len(order)):
        some = order[part]
        for column, told in zip(found.columns, (counts, firsts, lasts), strict=False):
            column.extend(map(told.__getitem__, some))
        named = [names[sid] for sid in some]
        found.columns[3].extend(map(len, named))
        found.names.append(b"".join(named))
        yield b""
    return numbers, found


def _slices(count: int, each: int = _STEP) -> list[slice]:
    return [slice(at, at + each) for at in range(0, count, each)]


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
