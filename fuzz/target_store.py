"""A store's files, damaged: a start succeeds, and what is read was written so, or is not there.

An input takes the place of a file of a small store, kept in memory. Most are read by what reads that file,
one in fifty by a whole start, and the store is then written to.
"""

from __future__ import annotations

import random
from typing import Any

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.entries import FILE_HEADER_BYTES
from headrace.broker.store.format.record import REMOVAL, scan
from headrace.broker.store.format.segment import HEADER_BYTES, decode_header
from headrace.broker.store.io.findings import Finding, Quarantine
from headrace.broker.store.log.file_log import FileLog
from headrace.broker.store.log.memory_log import MemoryLog
from headrace.broker.store.log.reader import SegmentCache
from headrace.broker.store.meta.journal import open_journal
from headrace.broker.store.meta.meta import UNSETTLED
from headrace.broker.store.recovery import open_log
from headrace.broker.store.storage.layout import HANDLES
from headrace.clock import ManualClock
from headrace.errors import StoreFormatError
from mutation import Target

ROOT = "/store"
SEGMENT_BYTES = 8 * 1024
REMOVED = [7, 8, 30]
WHOLE = 0.02
KEYS = ("stream/S", "consumer/S/C", "consumer/S/D")


def made() -> tuple[FaultFS, dict[int, bytes], dict[str, set[bytes]]]:
    """A store with a sealed segment and a tail, and some metadata; what was ever written to it."""
    fs = FaultFS()
    storage = opened(fs)
    log = storage.create_stream("S")
    storage.meta.keep_beside(KEYS[0], "S")
    storage.meta.keep_beside(KEYS[1], "S")
    written: dict[int, bytes] = {}
    said: dict[str, set[bytes]] = {key: {b""} for key in KEYS}
    for number in range(36):
        payload = b"%d " % number * 60
        written[log.append(b"s.%d" % (number % 5), b"", payload, number)] = payload
        key = KEYS[number % 3]
        if number < 9:
            value = b"%s is %d" % (key.encode(), number)
            said[key].add(value)
            storage.meta.put(key, value)
        elif number < 30:
            delta = b"then %d" % number
            said[key].add(delta)
            storage.meta.append(key, delta)
        if number % 9 == 8:
            storage.flush(lambda error: None)
    log.remove(REMOVED)
    storage.flush(lambda error: None)
    return fs, written, said


def opened(fs: FaultFS) -> FileStorage:
    return FileStorage(
        ROOT,
        fs=fs,
        clock=ManualClock(),
        threaded=False,
        segment_bytes=SEGMENT_BYTES,
        salts=random.Random(1),
    )


FS, WRITTEN, SAID = made()
SAID[UNSETTLED + "S"] = {
    b""
}  # the store's own: before its first message the stream had no directory
META, STREAM = f"{ROOT}/meta", f"{ROOT}/streams/S"
SEGMENTS = sorted(path for path in FS.files() if path.endswith(".seg"))
JOURNAL = f"{META}/journal-00000001"
assert len(SEGMENTS) > 1
assert FS.exists(f"{STREAM}/spare")


def written(path: str) -> bytes:
    """The content of a file without most of what is only reserved, which an accident would mostly hit."""
    content = FS.content(path)
    return content[: len(content.rstrip(b"\0")) + 64]


def before_removals(content: bytes) -> bytes:
    """The records of a tail without those of its last flush: of an earlier moment, as good as any."""
    header, _ = decode_header(content, "the tail")
    assert header is not None
    records = scan(content, HEADER_BYTES, len(content), header.salt)
    ends = next(each.offset for each in records if each.kind == REMOVAL)
    return content[HEADER_BYTES:ends].rstrip(b"\0")


def only(directory: str) -> FaultFS:
    """The store with the files of one directory."""
    fs = FS.kill()
    for path in fs.files():
        if path.startswith(directory + "/"):
            fs.overwrite(path, written(path))
        else:
            fs.unlink(path)
    return fs


META_ONLY, STREAM_ONLY = only(META), only(STREAM)
BEFORE_REMOVALS = before_removals(FS.content(SEGMENTS[-1]))


def check_journal(data: bytes, rng: random.Random) -> None:
    """Raise if a damaged journal keeps the store from starting, or says what nobody has said."""
    if rng.random() < WHOLE:
        check_start(data, rng)
        return
    fs = META_ONLY.kill()
    fs.overwrite(JOURNAL, data)
    quarantine = Quarantine(fs, f"{ROOT}/quarantine")
    found: list[Finding] = []
    try:
        journal = open_journal(fs, META, ROOT, quarantine, found.append, lambda: 7)
    except StoreFormatError:
        return  # another version, said twice
    check_said(journal.values)
    for key, loose in journal.loose.items():
        assert {delta for _, delta in loose} <= SAID[key], f"a delta nobody has put: {loose!r}"
    end = max(len(data), FILE_HEADER_BYTES)
    assert journal.end <= end or journal.missing, "it would go on behind the end"


def check_start(data: bytes, rng: random.Random) -> None:
    """The same by a whole start, with or without the copy beside the stream."""
    fs = FS.kill()
    fs.overwrite(JOURNAL, data)
    if rng.random() < 0.5:
        fs.unlink(f"{STREAM}/spare")
    try:
        storage = opened(fs)
    except StoreFormatError:
        return
    check_said(storage.meta.load())
    storage.meta.put("stream/S", b"new")
    storage.flush(lambda error: None)
    assert storage.failed is None


def check_said(values: Any) -> None:
    for key, (value, deltas) in values.items():
        assert key in SAID, f"a key nobody has put: {key!r}"
        assert value in SAID[key], f"a value nobody has put: {value!r}"
        assert SAID[key] >= set(deltas), f"a delta nobody has put: {deltas!r}"


def check_segment(data: bytes, rng: random.Random) -> None:
    """Raise if a damaged segment keeps the stream from opening, or gives bytes nobody has written."""
    path = rng.choice(SEGMENTS)
    if rng.random() < WHOLE:
        check_stream(path, data)
        return
    fs = STREAM_ONLY.kill()
    fs.overwrite(path, data)
    found: list[Finding] = []
    cache = SegmentCache(
        fs,
        ROOT,
        clock=ManualClock(),
        segment_bytes=SEGMENT_BYTES,
        cache_bytes=1 << 20,
        handles=HANDLES,
        salt=lambda: 7,
        report=found.append,
        mark_dirty=lambda log: None,
        restage=lambda log: None,
        chore=lambda chore: None,
        notify=lambda: None,
    )
    try:
        log = open_log("S", STREAM, cache, Quarantine(fs, f"{ROOT}/quarantine"))
    except StoreFormatError:
        return
    check_written(data, log, found)


def check_stream(path: str, data: bytes) -> None:
    """The same by a whole start."""
    fs = FS.kill()
    fs.overwrite(path, data)
    storage = opened(fs)
    try:
        log = storage.open_stream("S")
    except StoreFormatError:
        return
    check_written(data, log, storage.report)
    storage.flush(lambda error: None)
    assert storage.failed is None


def check_written(data: bytes, log: FileLog | MemoryLog, report: list[Finding]) -> None:
    told = report or data[HEADER_BYTES:].rstrip(b"\0") == BEFORE_REMOVALS
    for message in log.read(1, None, 1000, 1 << 20, log.last_seq):
        assert WRITTEN.get(message.sequence) == message.payload, f"wrong at {message.sequence}"
        assert message.sequence not in REMOVED or told, "back without a word"
    sequence = log.append(b"s.1", b"", b"new", 99)
    assert sequence > max(WRITTEN), f"{sequence} was given before"


TOKENS = [b"\0" * 16, b"\xff" * 8, b"\x01", b"HRMETAJR", b"S", FS.content(JOURNAL)[128:180]]
TARGETS = (
    Target("journal", [written(JOURNAL)], TOKENS, check_journal, joined_max=2),
    Target("segment", [*map(written, SEGMENTS)], TOKENS, check_segment, joined_max=1),
)
