"""Appending with conditions: messages that expire by themselves, messages that stand or fall together.

Neither costs a plain append anything: what is special is written into the record after it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final, Protocol

from ....errors import StoreError
from ..format.record import FLAG_EXPIRES, FLAG_OPEN
from ..format.segment import Expiries
from ..index.index import Segment, SubjectTable
from .log import SubjectSearch

TOGETHER_BYTES_MAX: Final = 1 << 30  # more in one go: StoreError, and nothing is appended
SUBJECT_MAX: Final = 0xFFFF
_OVERHEAD_MAX: Final = 64

ExpiryOf = Callable[[bytes, int], int]
"""``expiry_of(headers, timestamp_ns)``: when a message marked as expiring does so, in ns."""


Staged = tuple[bytes, bytes, bytes, int, int]
"""Subject, headers, payload, ``timestamp_ns``, ``expires_ns`` (0: it does not expire by itself)."""


def _footprint(message: Staged) -> int:
    """At most how many bytes the message takes where it is kept."""
    subject, headers, payload, _, _ = message
    return len(subject) + len(headers) + len(payload) + _OVERHEAD_MAX


class Appendable(Protocol):
    """A log, as far as these functions need it; see ``file_log.FileLog``."""

    name: str
    last_seq: int
    messages: int
    segments: list[Segment]
    table: SubjectTable
    superseded: list[tuple[int, int]] | None
    search: SubjectSearch

    def append(self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int) -> int: ...
    def append_expiring(
        self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int, expires_ns: int
    ) -> int: ...
    def check_writable(self) -> None: ...
    def skip_past(self, last_seq: int) -> None: ...
    def make_room(self, nbytes: int) -> None: ...
    def append_open(self, messages: Sequence[Staged]) -> None: ...
    def flag_last(self, flag: int) -> None: ...


def append_each(
    log: Appendable,
    subjects: Sequence[bytes],
    payloads: Sequence[bytes],
    timestamp_ns: int,
    blocks: Sequence[bytes],
) -> None:
    """``append_many``, one message after the other."""
    append = log.append
    names = repeat(subjects[0]) if len(subjects) == 1 else subjects
    for subject, headers, payload in zip(names, blocks or repeat(b""), payloads, strict=False):
        append(subject, headers, payload, timestamp_ns)


def append_expiring(
    log: Appendable,
    subject: bytes,
    headers: bytes,
    payload: bytes,
    timestamp_ns: int,
    expires_ns: int,
) -> int:
    """Stage one message that expires by itself; return its sequence. Raises as ``append`` does."""
    sequence = log.append(subject, headers, payload, timestamp_ns)
    tail = log.segments[-1]
    if tail.expiries is None:
        tail.expiries = Expiries()
    tail.expiries.add(sequence - tail.base, expires_ns)
    log.flag_last(FLAG_EXPIRES)
    return sequence


def append_together(log: Appendable, messages: Sequence[Staged]) -> int:
    """Stage messages of which a restart finds all or none; return the first one's sequence.

    Raises StoreError as ``append`` does, and when they are too large together; then none is staged.
    """
    total = sum(map(_footprint, messages))
    if total > TOGETHER_BYTES_MAX:
        raise StoreError(
            f"messages that belong together may take {TOGETHER_BYTES_MAX} bytes; these {total}"
        )
    if any(len(message[0]) > SUBJECT_MAX for message in messages):
        raise StoreError(f"a subject may have {SUBJECT_MAX} bytes")
    first = log.last_seq + 1
    log.make_room(total)
    if len(messages) > 1 and not any([message[4] for message in messages]):  # noqa: C419
        log.append_open(messages)
        return first
    for message in messages:
        if message[4]:
            log.append_expiring(*message)
        else:
            log.append(*message[:4])
        if log.last_seq < first + len(messages) - 1:
            log.flag_last(FLAG_OPEN)
    return first


def count_each(log: Appendable, sids: Sequence[int]) -> None:
    """Count the messages that were appended last, by their subjects, of which a range are new ones."""
    occurrences, first = log.search.occurrences, log.last_seq + 1 - len(sids)
    if isinstance(sids, range):
        log.table.add_new(sids, first)
    else:
        _count_each(log.table, sids, first, log.superseded)
    if occurrences is not None:
        for sequence, sid in enumerate(sids, first):
            occurrences.add(sid, sequence)


def _count_each(
    table: SubjectTable, sids: Sequence[int], first: int, noted: list[tuple[int, int]] | None
) -> None:
    counts, firsts, lasts = table.counts, table.firsts, table.lasts
    for sequence, sid in enumerate(sids, first):
        count = counts[sid]
        if not count:
            firsts[sid] = sequence
            table.empty -= 1
        elif noted is not None:
            noted.append((sid, lasts[sid]))
        counts[sid] = count + 1
        lasts[sid] = sequence


def reset_first(log: Appendable, sequence: int) -> None:
    """On an empty stream only: the next message gets this sequence.

    Raises StoreError if there are messages, or if ``sequence`` was already used.
    """
    log.check_writable()
    if log.messages:
        raise StoreError(
            f"stream {log.name!r} holds {log.messages} messages: only an empty stream can be "
            f"given a first sequence"
        )
    if sequence <= log.last_seq:
        raise StoreError(
            f"stream {log.name!r} has used sequences up to {log.last_seq}: the first sequence "
            f"can be set to {log.last_seq + 1} or more, not {sequence}"
        )
    if sequence > log.last_seq + 1:
        log.skip_past(sequence - 1)


def skip_to(log: Appendable, sequence: int) -> None:
    """The next message gets this sequence; those in between are never used.

    Raises StoreError if ``sequence`` was already used.
    """
    if not log.messages:
        reset_first(log, sequence)
        return
    log.check_writable()
    if sequence <= log.last_seq:
        raise StoreError(
            f"stream {log.name!r} has used sequences up to {log.last_seq}: the next one can not "
            f"be {sequence}"
        )
    if sequence > log.last_seq + 1:
        log.skip_past(sequence - 1)
