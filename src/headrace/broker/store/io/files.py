"""The file operations the store needs, as a port, and the machine's own implementation.

The store never calls ``os`` itself: a test hands in a file system that loses unsynced writes, runs
full or fails at a chosen call (``tests/faultfs.py``).

One call syncs a whole file system: it puts on disk whatever was written, in however many files. Python
lacks the system call. It is used only where its answer can be relied on: on a 64-bit Linux that tells
whoever asks of every write that failed (5.17), and on file systems of which it is known that the call
returns when the disk has all.

``DirectoryLock`` keeps it to one process per directory: an advisory lock that ends with the process,
however it ends.

``ReadOnlyFiles`` are for whoever only looks: a store opened with these recovers as it would at a start,
and leaves the directory as it found it. Files it would make are kept in memory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol

from ....errors import (
    StoreError,
    StoreFailedError,
    StoreFullError,
    StoreLockedError,
    StoreReadError,
)

_KERNEL: Final = (5, 17)  # from then on a file system's own failures are told, too
_FILE_SYSTEMS: Final = frozenset(
    {0xEF53, 0x58465342, 0x9123683E}
)  # ext4, XFS, btrfs: of linux/magic.h
_STATFS_BYTES: Final = 512  # more than it has anywhere
_DIRTY: Final = b"Dirty:"
_NO_HANDLES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}) | _NO_HANDLES
PUNCH_BYTES: Final = 4096
"""What can be given back inside a file comes in pieces of so many bytes."""
_KEEP_SIZE: Final = 1  # of linux/falloc.h
_PUNCH_HOLE: Final = 2
_SPOILT: Final = 2048  # what is given up around an unreadable place
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_TEXT_MAX = 512


@cache
def _calls() -> tuple[Callable[[int], int], Callable[..., int], Callable[[], int]] | None:
    """The system's ``syncfs`` and ``fstatfs``, and what tells their errors; None where they are not."""
    if sys.platform != "linux" or struct.calcsize("l") != 8 or _kernel() < _KERNEL:
        return None
    import ctypes  # a start needs it not

    library = ctypes.CDLL(None, use_errno=True)
    syncfs, fstatfs = getattr(library, "syncfs", None), getattr(library, "fstatfs", None)
    if syncfs is None or fstatfs is None:
        return None
    syncfs.argtypes = (ctypes.c_int,)
    return syncfs, fstatfs, ctypes.get_errno


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _is_known(handle: int) -> bool:
    """Whether the file lies on one of the file systems on which the call does what is wanted."""
    calls = _calls()
    if calls is None:
        return False
    import ctypes

    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if calls[1](handle, answer) != 0:
        return False
    kind: int = struct.unpack_from("l", answer.raw)[0]
    return kind in _FILE_SYSTEMS


def dirty_bytes() -> int | None:
    """How much the machine has yet to write to its disks; None where it does not say."""
    try:
        with open("/proc/meminfo", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(_DIRTY):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None  # a system without it, or one that hides it: then it is not known
    return None


class WholeSync:
    """Syncs the file system that one file lies on. ``handle`` is kept open by whoever hands it in: the
    system tells it of every failure since it was opened.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._is_known = _is_known(handle)
        self.device: Final = os.fstat(handle).st_dev
        """Where the file lies."""

    def sync(self, paths: Sequence[str], most_dirty: int) -> bool:
        """See ``FileSystem.sync_whole``."""
        calls = _calls()
        if not self._is_known or calls is None:
            return False
        device = self.device
        for path in paths:
            if os.stat(path).st_dev != device:  # noqa: PTH116
                return False  # a disk of its own below the store's directory: not synced with it
        waiting = dirty_bytes()
        if waiting is None or waiting > most_dirty:
            return False
        if calls[0](self._handle) != 0:
            number = calls[2]()
            raise OSError(number, os.strerror(number))
        return True


@cache
def _fallocate() -> tuple[Callable[[int, int, int, int], int], Callable[[], int]] | None:
    """The system call that Python lacks, and what tells its error; None where there is none."""
    import ctypes  # a start needs it not

    found = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found, ctypes.get_errno


class FileSystem(Protocol):
    """What the store asks of a disk. Paths are absolute text; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing; with ``create`` the file must not exist yet.

        A symbolic link is not followed.
        """

    def close(self, handle: int) -> None: ...

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read; shorter than ``length`` only at the end of the file."""

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        """Write; returns how many bytes were taken, which may be fewer."""

    def fdatasync(self, handle: int) -> None:
        """Return once the content and the size are on disk."""

    def sync_whole(self, handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        """Return True once all that was done to the file system of ``handle`` is on disk: contents, sizes,
        names. ``paths`` are files and directories of which that has to be true. Raises OSError when any of
        it has failed since ``handle`` was opened, in whichever file; the file's own sync tells which.

        False, with nothing done, where this cannot be had: not on this system, not for one of the paths,
        or because others have more than ``most_dirty`` bytes to be written, which would be waited for.
        """

    def allocate(self, handle: int, offset: int, length: int) -> bool:
        """Reserve space that reads as zeros; False if this disk has no such operation."""

    def punch(self, handle: int, offset: int, length: int) -> bool:
        """Give back the room of these bytes, which read as zeros then; False if this disk can not.

        ``offset`` and ``length`` are multiples of PUNCH_BYTES.
        """

    def truncate(self, handle: int, length: int) -> None: ...

    def size(self, handle: int) -> int: ...

    def lock(self, handle: int) -> bool:
        """Take an exclusive lock that ends with the handle; False if someone else has it."""

    def mkdir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing a file at ``target``; durable only after ``fsync_dir``."""

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def kind(self, path: str) -> str:
        """What lies there, links not followed: file, directory, link, other; empty if nothing does."""

    def is_at(self, handle: int, path: str) -> bool:
        """Whether the open file is still what lies at ``path``."""

    def fsync_dir(self, path: str) -> None:
        """Return once creations, renames and removals in this directory are on disk."""


class _Place(NamedTuple):
    """Where an open file lies, which stays so until it is closed, and the path it was asked about."""

    device: int
    inode: int
    path: str


class LocalFiles:
    """The machine's own file system.

    ``reserve`` descriptors are taken at once and kept, so that others in the process, as sockets, cannot
    use up all there are: a file that is opened gets one of these, and gives it back when it is closed.
    Raises OSError when there are not so many.
    """

    def __init__(self, reserve: int = 0) -> None:
        self._reserve = reserve
        self._open_files = 0
        self._spare: list[int] = []
        self._lock = threading.Lock()  # the owner and the commit thread open and close
        self._wholes: dict[int, WholeSync] = {}
        self._places: dict[int, _Place] = {}  # by handle, as ``is_at`` has found them
        self._placed: dict[str, _Place] = {}  # … and by path
        try:
            for _ in range(reserve):
                self._spare.append(_nothing())
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give the reserve back."""
        with self._lock:
            self._reserve = 0
            while self._spare:
                os.close(self._spare.pop())

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        return self._open(path, flags | (os.O_CREAT | os.O_EXCL if create else 0))

    def _open(self, path: str, flags: int) -> int:
        with self._lock:
            try:
                handle = self._open_in_reserve(path, flags)
            except OSError:
                self._refill()
                raise
            self._open_files += 1
            return handle

    def _open_in_reserve(self, path: str, flags: int) -> int:
        while self._spare:
            os.close(self._spare.pop())
            try:
                return os.open(path, flags, 0o600)
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                # Another thread, not of the store, has snatched what was freed: try the next one.
        return os.open(path, flags, 0o600)

    def _refill(self) -> None:
        try:
            while len(self._spare) + self._open_files < self._reserve:
                self._spare.append(_nothing())
        except OSError:
            return  # as many as there are; the next file that is closed is tried again

    def close(self, handle: int) -> None:
        self._wholes.pop(handle, None)
        self._forget_place(handle)
        with self._lock:
            self._open_files -= 1
            if self._spare and len(self._spare) + self._open_files < self._reserve:
                # It closes the file, and keeps its number taken.
                os.dup2(self._spare[-1], handle, inheritable=False)
                self._spare.append(handle)
            else:
                os.close(handle)
                self._refill()

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        data = os.pread(handle, length, offset)
        while 0 < len(data) < length:
            more = os.pread(handle, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def sync_whole(self, handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        whole = self._wholes.get(handle)
        if whole is None:
            whole = self._wholes[handle] = WholeSync(handle)
        # An open file stays on its disk: a call of the system for each is most of what a sync of many costs.
        known, device = self._placed, whole.device
        unknown = [at for at in paths if at not in known or known[at].device != device]
        return whole.sync(unknown, most_dirty)

    def allocate(self, handle: int, offset: int, length: int) -> bool:
        try:
            os.posix_fallocate(handle, offset, length)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return False
            raise
        return True

    def punch(self, handle: int, offset: int, length: int) -> bool:
        known = _fallocate()
        if known is None:
            return False
        fallocate, get_errno = known
        if fallocate(handle, _PUNCH_HOLE | _KEEP_SIZE, offset, length) == 0:
            return True
        number = get_errno()
        if number in _UNSUPPORTED:
            return False
        raise OSError(number, os.strerror(number))

    def truncate(self, handle: int, length: int) -> None:
        os.ftruncate(handle, length)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def lock(self, handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o700)  # noqa: PTH102

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)  # noqa: PTH105

    def unlink(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108

    def rmdir(self, path: str) -> None:
        os.rmdir(path)  # noqa: PTH106

    def listdir(self, path: str) -> list[str]:
        with self._lock:
            if self._spare:
                os.close(self._spare.pop())
            try:
                return sorted(os.listdir(path))  # noqa: PTH208
            finally:
                self._refill()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)  # noqa: PTH110

    def kind(self, path: str) -> str:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return ""
        return _KINDS.get(stat.S_IFMT(mode), "other")

    def is_at(self, handle: int, path: str) -> bool:
        try:
            there = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return False
        place = self._places.get(handle)
        if place is None or place.path != path:
            self._forget_place(handle)
            here = os.fstat(handle)
            place = _Place(here.st_dev, here.st_ino, path)
        if place.inode != there.st_ino or place.device != there.st_dev:
            self._forget_place(handle)
            return False
        self._places[handle] = self._placed[path] = place
        return True

    def _forget_place(self, handle: int) -> None:
        place = self._places.pop(handle, None)
        if place is not None and self._placed.get(place.path) is place:
            del self._placed[place.path]

    def fsync_dir(self, path: str) -> None:
        handle = self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            self.close(handle)


def _nothing() -> int:
    """A descriptor of nothing, that only takes its place."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class Handles:
    """Open handles by path, the least recently used closed first. Belongs to one thread."""

    def __init__(self, fs: FileSystem, limit: int) -> None:
        self._fs = fs
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> int:
        """The handle of ``path``, opened if need be."""
        handle = self._open.get(path)
        if handle is not None:
            self._open.move_to_end(path)
            return handle
        try:
            handle = self._fs.open(path, create=create)
        except OSError as error:
            if error.errno not in _NO_HANDLES or not self._open:
                raise
            self.close()  # the process is short of handles: make do with one
            handle = self._fs.open(path, create=create)
        self._open[path] = handle
        if len(self._open) > self._limit:
            _, oldest = self._open.popitem(last=False)
            self._fs.close(oldest)
        return handle

    def of_all(self, paths: Sequence[str]) -> list[int] | None:
        """The handles of all these, open at once; None if there are not so many. Raises OSError."""
        for path in paths:
            self.get(path)
        found = [self._open[path] for path in paths if path in self._open]
        return found if len(found) == len(paths) else None

    def are_open(self, paths: Sequence[str]) -> bool:
        """Whether all these have a handle now."""
        return all(path in self._open for path in paths)

    def drop(self, path: str) -> None:
        """Close the handle of ``path``, if open."""
        handle = self._open.pop(path, None)
        if handle is not None:
            self._fs.close(handle)

    def drop_under(self, directory: str) -> None:
        for path in [path for path in self._open if path.startswith(directory + "/")]:
            self.drop(path)

    def close(self) -> None:
        while self._open:
            _, handle = self._open.popitem()
            self._fs.close(handle)


def write_all(fs: FileSystem, handle: int, data: bytes, offset: int) -> None:
    """Write all of ``data``, continuing after short writes. Raises OSError (ENOSPC if stuck)."""
    written = fs.pwrite(handle, data, offset)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(data):
        step = fs.pwrite(handle, rest[written:], offset + written)
        if step <= 0:
            raise OSError(errno.ENOSPC, "the disk took no more bytes")
        written += step


def read_around(fs: FileSystem, handle: int, length: int, offset: int) -> bytes:
    """Read, with zeros in place of what the disk cannot read.

    For recovery, which finds damage by checksums anyway. Other errors, as a shortage of memory or
    handles, are raised as OSError.
    """
    try:
        return fs.pread(handle, length, offset)
    except OSError as error:
        if is_full(error):
            raise
    length = max(0, min(length, fs.size(handle) - offset))
    pieces = []
    for at in range(0, length, _SPOILT):
        step = min(_SPOILT, length - at)
        try:
            pieces.append(fs.pread(handle, step, offset + at))
        except OSError as error:
            if is_full(error):
                raise
            pieces.append(bytes(step))
    return b"".join(pieces)


def read_start(fs: FileSystem, path: str, length: int) -> bytes:
    """The first bytes of a file, nothing if there is none; see ``read_around``."""
    if not fs.exists(path):
        return b""
    handle = fs.open(path)
    try:
        return read_around(fs, handle, length, 0)
    finally:
        fs.close(handle)


def is_full(error: OSError) -> bool:
    """Whether the error says that there is no room (or no handle) now, not that the disk fails."""
    return error.errno in _FULL


def explain(error: OSError, doing: str) -> StoreError:
    """The store's error for an OSError met while ``doing`` something."""
    text = f"{doing}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = f"the disk is full: {text}"
    return StoreFullError(text) if is_full(error) else StoreFailedError(text)


def unreadable(error: OSError, path: str) -> StoreReadError:
    """The store's error for an OSError met while reading ``path``: it changes nothing."""
    text = f"reading {path}: {error.strerror or error}"
    return StoreReadError(text, path, error.errno or 0)


class DirectoryLock:
    """Holds ``<directory>/lock``. Raises StoreLockedError naming the process that has it."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        path = self._path = directory + "/lock"
        self._handle = fs.open(path, create=not fs.exists(path))
        if not fs.lock(self._handle):
            holder = fs.pread(self._handle, _TEXT_MAX, 0).decode(errors="replace").strip()
            fs.close(self._handle)
            raise StoreLockedError(
                f"{directory} is in use by {holder or 'another process'}; "
                f"stop it, or choose another directory"
            )
        text = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        try:
            write_all(fs, self._handle, text, 0)
            fs.truncate(self._handle, len(text))
        except OSError as error:
            if not is_full(error):  # a store on a full disk opens all the same: it may be emptied
                raise

    @property
    def handle(self) -> int:
        """The open file: older than all that is written to the store while it is held."""
        return self._handle

    def in_place(self) -> bool:
        """Whether the lock still lies in the directory: if not, that was removed, or is another one."""
        return self._fs.is_at(self._handle, self._path)

    def release(self) -> None:
        """Let others in."""
        self._fs.close(self._handle)


class ReadOnlyFiles:
    """A ``FileSystem`` that reads and never writes; see ``files.FileSystem``."""

    def __init__(self) -> None:
        self._files: Final = LocalFiles()
        self._made: set[int] = set()
        self.is_at = self._files.is_at
        self.kind = self._files.kind
        self.listdir = self._files.listdir
        self.exists = self._files.exists
        self.lock = self._files.lock
        self.pread = self._files.pread
        self.size = self._files.size
        self.release = self._files.release

    def open(self, path: str, *, create: bool = False) -> int:
        if not create:
            return self._files.open(path)
        handle = os.memfd_create("headrace-looking")
        self._made.add(handle)
        return handle

    def close(self, handle: int) -> None:
        if handle in self._made:
            self._made.discard(handle)
            os.close(handle)
        else:
            self._files.close(handle)

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        return self._files.pwrite(handle, data, offset) if handle in self._made else len(data)

    def truncate(self, handle: int, length: int) -> None:
        if handle in self._made:
            self._files.truncate(handle, length)

    def fdatasync(self, handle: int) -> None:
        """Do nothing, as nothing was written."""

    def sync_whole(self, handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        return True  # nothing was written

    def allocate(self, handle: int, offset: int, length: int) -> bool:
        return False

    def punch(self, handle: int, offset: int, length: int) -> bool:
        return False

    def mkdir(self, path: str) -> None:
        """It is not made."""

    def rename(self, source: str, target: str) -> None:
        """It stays where it is."""

    def unlink(self, path: str) -> None:
        """It stays."""

    def rmdir(self, path: str) -> None:
        """It stays."""

    def fsync_dir(self, path: str) -> None:
        """Do nothing, as nothing was changed."""
