"""Where the folders of tests lie: in ``make test`` in memory, so that nobody waits for a disk.

What a process has written outlives its kill there, too. Rooms whose tests say what becomes of files on a disk
have theirs on one (the fixture ``on_disk``), and ``make test-all`` has all of them there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["IN_MEMORY", "ROOT_OF_FOLDERS", "environment"]

IN_MEMORY: Final = "/dev/shm"
ROOT_OF_FOLDERS: Final = "PYTEST_DEBUG_TEMPROOT"
"""The variable by which pytest is told where to make its folders."""
LEAST_BYTES: Final = 4 << 30
"""What has to be free: folders of tests that passed go with them, and others stay."""


def environment(given: Mapping[str, str], place: str = IN_MEMORY) -> dict[str, str]:
    """What has pytest make its folders in memory, unless somebody says another place; nothing where that is
    small, as in most containers, or where no program can be run."""
    if ROOT_OF_FOLDERS in given or not Path(place).is_dir() or not os.access(place, os.W_OK):
        return {}
    disk = os.statvfs(place)
    if disk.f_flag & os.ST_NOEXEC or disk.f_bavail * disk.f_frsize < LEAST_BYTES:
        return {}
    return {ROOT_OF_FOLDERS: place}
