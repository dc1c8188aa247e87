"""A store's files, damaged: a start succeeds, and what is read was written so, or is not there.

An input takes the place of a file of a small store, kept in memory.
"""

from __future__ import annotations

import random

from headrace.broker.store import FileStorage
from headrace.clock import ManualClock
from headrace.errors import StoreFormatError
from headrace.testing.faultfs import FaultFS
from mutation import Target

ROOT = "/store"
SEGMENT_BYTES = 8 * 1024
REMOVED = [7, 8, 40]
KEYS = ("stream/S", "consumer/S/C", "consumer/S/D")


def made() -> tuple[FaultFS, dict[int, bytes], dict[str, set[bytes]]]:
    """A store with a sealed segment and a tail, and some metadata; what was ever written to it."""
    fs = FaultFS()
    storage = opened(fs)
    log = storage.create_stream("S")
    written: dict[int, bytes] = {}
    said: dict[str, set[bytes]] = {key: {b""} for key in KEYS}
    for number in range(60):
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
        if number % 10 == 9:
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
SEGMENTS = sorted(path for path in FS.files() if path.endswith(".seg"))
JOURNAL = f"{ROOT}/meta/journal-00000001"
assert len(SEGMENTS) > 1


def check_journal(data: bytes, rng: random.Random) -> None:
    """Raise if a damaged journal keeps the store from starting, or says what nobody has said."""
    fs = FS.kill()
    fs.overwrite(JOURNAL, data)
    if rng.random() < 0.5:
        fs.unlink(f"{ROOT}/streams/S/spare") if fs.exists(f"{ROOT}/streams/S/spare") else None
    try:
        storage = opened(fs)
    except StoreFormatError:
        return  # another version, said twice
    for key, (value, deltas) in storage.meta.load().items():
        assert key in SAID, f"a key nobody has put: {key!r}"
        assert value in SAID[key], f"a value nobody has put: {value!r}"
        assert SAID[key] >= set(deltas), f"a delta nobody has put: {deltas!r}"
    storage.meta.put("stream/S", b"new")
    storage.flush(lambda error: None)
    assert storage.failed is None


def check_segment(data: bytes, rng: random.Random) -> None:
    """Raise if a damaged segment keeps the stream from opening, or gives bytes nobody has written."""
    fs = FS.kill()
    fs.overwrite(rng.choice(SEGMENTS), data)
    storage = opened(fs)
    try:
        log = storage.open_stream("S")
    except StoreFormatError:
        return
    for message in log.read(1, None, 1000, 1 << 20, log.last_seq):
        assert WRITTEN.get(message.sequence) == message.payload, f"wrong at {message.sequence}"
        assert message.sequence not in REMOVED or storage.report, "back without a word"
    sequence = log.append(b"s.1", b"", b"new", 99)
    assert sequence > max(WRITTEN), f"{sequence} was given before"
    storage.flush(lambda error: None)
    assert storage.failed is None


TOKENS = [b"\0" * 16, b"\xff" * 8, b"\x01", b"HRMETAJR", b"S", FS.content(JOURNAL)[128:180]]
TARGETS = (
    Target("journal", [FS.content(JOURNAL)], TOKENS, check_journal, joined_max=2),
    Target("segment", [FS.content(path) for path in SEGMENTS], TOKENS, check_segment, joined_max=1),
)
