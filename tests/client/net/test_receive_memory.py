"""What is received comes into memory that the process has, not into pages that the system has to clear."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

READS, ROOM_BYTES, READ_BYTES = 100, 256 * 1024, 64 * 1024

PROGRAM = f"""
import resource, socket, sys
from headrace.client.net.link import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
ours, theirs = socket.socketpair()
sent = bytes({READ_BYTES})
theirs.sendall(sent)
ours.recv({ROOM_BYTES})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({READS}):
    theirs.sendall(sent)
    read = ours.recv({ROOM_BYTES})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """How many pages the system had to clear for so many reads."""
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)},
    )
    return int(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives blocks back")
def test_freed_blocks_are_used_again_instead_of_new_pages() -> None:
    assert faults("kept") < READS
    assert faults("plain") > READS, "or nobody need ask for it"
