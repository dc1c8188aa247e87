"""Memory that was freed goes back to the system."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from headrace.broker.store.log.idle import give_back

BLOCK_BYTES = 100_000  # small enough for the heap, which ends with what is in use
PAGE_BYTES = 4096


def resident_bytes() -> int:
    return PAGE_BYTES * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_memory_below_something_in_use_goes_back_to_the_system() -> None:
    give_back()
    blocks = [bytearray(BLOCK_BYTES) for _ in range(600)]
    last = bytearray(BLOCK_BYTES)
    held = resident_bytes()
    blocks.clear()
    assert give_back()
    assert resident_bytes() < held - 400 * BLOCK_BYTES
    assert len(last) == BLOCK_BYTES
