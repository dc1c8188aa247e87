"""A real ext4 on a file, whose power can be cut: what was not synced is gone when it is mounted again."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

__all__ = ["LoopDisk", "MountRefusedError"]

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2  # not even the file system's journal is written
_BYTES = 256 << 20


class MountRefusedError(Exception):
    """This machine does not let us mount a file; says why."""


class LoopDisk:
    """``mount`` and ``cut`` take turns. Needs root, a loop device and mkfs.ext4."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "disk.img"
        self.mounted_at = directory / "disk"
        self.mounted_at.mkdir(parents=True)
        if sys.platform != "linux":
            raise MountRefusedError("loop mounts are a thing of Linux")
        missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if _found(tool) is None]
        if missing or os.geteuid() != 0:
            raise MountRefusedError(f"needs {', '.join(missing) or 'root'}")
        with self.image.open("wb") as image:
            image.truncate(_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", self.image)
        self.mount()

    def mount(self) -> None:
        """Raises MountRefusedError."""
        _run("mount", "-o", "loop", self.image, self.mounted_at)

    def cut(self) -> None:
        """From here on nothing reaches the disk, and whoever tries gets EIO."""
        handle = os.open(self.mounted_at, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        except OSError as error:
            raise MountRefusedError(f"this kernel cuts no power: {error}") from error
        finally:
            os.close(handle)

    def unmount(self) -> None:
        """When nobody uses it any more."""
        _run("umount", self.mounted_at)

    def close(self) -> None:
        """Unmount, if it is mounted, and forget the disk."""
        if self.mounted_at.is_mount():
            _run("umount", "-l", self.mounted_at)
        self.image.unlink(missing_ok=True)


def _found(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _run(tool: str, *arguments: str | Path) -> None:
    path = _found(tool)
    assert path is not None
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MountRefusedError(f"{tool}: {done.stderr.strip() or done.returncode}")
