"""The scrub: what rots in files nobody reads is found, whatever the pieces it is read in."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.segment import HEADER_BYTES
from headrace.broker.store.io.findings import Finding
from headrace.broker.store.storage import scrub
from headrace.broker.store.storage.scrub import ScrubState
from headrace.clock import ManualClock


def filled() -> tuple[FaultFS, FileStorage]:
    """A store with several sealed segments, of small and large records."""
    fs = FaultFS()
    storage = FileStorage(
        "/store",
        fs=fs,
        clock=ManualClock(),
        threaded=False,
        segment_bytes=8 * 1024,
        salts=random.Random(1),
    )
    log = storage.create_stream("S")
    for number in range(120):
        log.append(b"s", b"", b"%d " % number * (300 if number % 20 == 0 else 50), number)
    storage.flush(lambda error: None)
    return fs, storage


def scrubbed(fs: FaultFS, storage: FileStorage) -> tuple[list[Finding], ScrubState]:
    found: list[Finding] = []
    state = ScrubState()
    for nbytes in scrub.scrub(fs, storage.sealed_files(), state, found.append):
        assert 0 < nbytes <= scrub.PIECE_BYTES
    return found, state


def test_a_sound_store_is_read_whole_and_nothing_is_found() -> None:
    fs, storage = filled()
    files = storage.sealed_files()
    assert len(files) >= 3
    found, state = scrubbed(fs, storage)
    assert (found, state.damaged, state.files) == ([], 0, len(files))
    assert state.nbytes == sum(file.end - HEADER_BYTES for file in files)


@given(
    piece=st.sampled_from([64, 100, 257, 1024, 1 << 17]),
    flips=st.lists(st.integers(min_value=0, max_value=10**9), min_size=1, max_size=3),
    which=st.integers(min_value=0, max_value=10**9),
)
def test_flipped_bits_are_found_whatever_the_pieces(
    piece: int, flips: list[int], which: int
) -> None:
    fs, storage = filled()
    files = storage.sealed_files()
    file = files[which % len(files)]
    first, size = HEADER_BYTES * 8, (file.end - HEADER_BYTES) * 8
    bits = {first + flip % size for flip in flips}
    for bit in bits:
        fs.flip_bit(file.path, bit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scrub, "PIECE_BYTES", piece)
        found, state = scrubbed(fs, storage)
    assert {finding.path for finding in found} == {file.path}
    assert state.damaged == len(found) <= len(bits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scrub, "PIECE_BYTES", 1 << 17)
        whole, _ = scrubbed(fs, storage)
    assert [(f.offset, f.what) for f in found] == [(f.offset, f.what) for f in whole]
    for bit in bits:  # each lies in a stretch that was found
        lengths = [int(f.what.split()[1]) for f in found]
        assert any(f.offset <= bit // 8 < f.offset + n for f, n in zip(found, lengths, strict=True))


def test_a_file_that_goes_meanwhile_is_no_longer_of_interest() -> None:
    fs, storage = filled()
    files = storage.sealed_files()
    log = storage.open_stream("S")
    log.purge(None)
    storage.flush(lambda error: None)
    found: list[Finding] = []
    assert list(scrub.scrub(fs, files, ScrubState(), found.append)) == []
    assert found == []


def test_what_the_disk_cannot_read_is_told_and_the_rest_is_read() -> None:
    fs, storage = filled()
    first, *others = storage.sealed_files()
    fs.bar(first.path, errno.EIO)
    found, state = scrubbed(fs, storage)
    assert [finding.path for finding in found] == [first.path]
    assert "cannot be read" in found[0].what
    assert state.files == len(others)


def test_a_file_that_was_cut_is_told() -> None:
    fs, storage = filled()
    file = storage.sealed_files()[0]
    fs.overwrite(file.path, fs.content(file.path)[: file.end - 700])
    found, _ = scrubbed(fs, storage)
    assert any("ends too early" in finding.what for finding in found)
