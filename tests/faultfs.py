"""A file system in memory that fails on purpose: the disk for tests of the store.

It implements ``headrace.broker.store.FileSystem``. A power cut loses unsynced writes, as on a real
disk:

- each write to a file since its last ``fdatasync`` survives or not, independently, in whole or in part;
  a write after a surviving one never loses a truncation that came before it;
- of the creations, renames and removals since the last ``fsync_dir`` of their directory, the first few
  survive, in the order they were made;
- after a failed ``fdatasync`` the data is lost although a second one succeeds, as on Linux;
- after a failed ``sync_whole`` all unsynced data is lost, and the next ``fdatasync`` of each of these
  files tells so, once;
- a write-back of the system's own that failed (``fail_write_back``) is told twice: once by the file's
  ``fdatasync`` and once by ``sync_whole``, to whoever asks first. A file that nobody has open forgets it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from typing import Final, Literal

__all__ = ["Fault", "FaultFS", "PowerCut"]

Fault = Literal["crash", "crash after", "enospc", "eio", "short"]
"""The fault at a chosen operation: the power fails before or after it, the disk refuses it, or a write
stores half of the bytes.
"""

_SECTOR: Final = 512
_BLOCK: Final = 4096


class PowerCut(BaseException):
    """The machine is off. Not an Exception: no code may handle it and continue."""


class _Blank(bytes):
    """A freed block: after a power cut it has its old content or none."""


class _Node:
    """A file: its content as programs see it, its content on disk, and the difference."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []  # writes, or the length of a truncation
        self.locked_by = -1
        self.holes: set[int] = set()  # freed blocks
        self.unreadable = range(0)
        self.has_failed = False  # a write was lost, and nobody who asked for this file was told

    def copy(self) -> _Node:
        twin = _Node()
        twin.content = bytearray(self.content)
        twin.synced = bytearray(self.synced)
        twin.pending = list(self.pending)
        twin.holes = set(self.holes)
        return twin


class _Directory:
    def __init__(self) -> None:
        self.entries: dict[str, _Node | _Directory] = {}
        self.synced: dict[str, _Node | _Directory] = {}


_Change = tuple[_Directory, str, "_Node | _Directory | None"]


class FaultFS:
    """A file system in memory with a disk of ``capacity`` bytes (None: unlimited).

    ``operations`` counts the calls that change or sync something; ``fail`` makes one of them fail.
    ``reads`` counts the calls that open an existing file, or read one; ``fail_read`` makes one of these
    fail, and ``read_error`` makes all of them fail while it is set. With ``wholes`` all of it can be synced
    by one call.
    """

    def __init__(self, *, capacity: int | None = None, wholes: bool = False) -> None:
        self.capacity = capacity
        self.punches = True
        """Whether this disk can free space inside a file."""
        self.wholes = wholes
        self.operations = 0
        self.syncs = 0  # files whose content was synced to disk
        self.log: list[str] = []
        self._root = _Directory()
        self._handles: dict[int, _Node] = {}
        self._next_handle = 3
        self._changes: list[list[_Change]] = []  # directory changes not yet synced, each atomic
        self._faults: dict[int, Fault] = {}
        self.reads = 0
        self.read_error = 0
        """An errno: every open and read of a file fails with it, until it is 0 again."""
        self.failed_reads: list[str] = []
        """The calls that failed because of ``fail_read`` and ``read_error``."""
        self._read_faults: dict[int, int] = {}
        self._barred: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._off = False
        self._has_failed = False  # a write was lost, and nobody who asked for the whole was told

    # -- for tests

    def fail(self, operation: int, fault: Fault) -> None:
        """Make the operation with this number (counted from 1) fail."""
        self._faults[operation] = fault

    def fail_read(self, number: int, error: int) -> None:
        """Make the open or read with this number (counted from 1) fail with an errno."""
        self._read_faults[number] = error

    def bar(self, path: str, error: int = errno.EACCES) -> None:
        """Make every open and read of a file fail with an errno; 0 lets them succeed again."""
        self._barred[path] = error

    def power_cut(self, rng: random.Random) -> FaultFS:
        """Switch off, and return the disk as it is found when power is back."""
        self._off = True
        kept = rng.randrange(len(self._changes) + 1)
        for change in self._changes[:kept]:
            _apply(change)
        survivor = self._after_this()
        survivor._root = _survive_directory(self._root, rng)
        return survivor

    def kill(self) -> FaultFS:
        """End the process, not the machine: what was written is read again, locks are free.

        The content of files that was not synced is lost when the power goes later.
        """
        self._off = True
        survivor = self._after_this()
        survivor._root = _copy_directory(self._root)
        return survivor

    def _after_this(self) -> FaultFS:
        return FaultFS(capacity=self.capacity, wholes=self.wholes)

    def unsynced(self) -> list[str]:
        """The paths of files with writes that are not synced, sorted."""
        return [path for path in self.files() if self._file(path).pending]

    def files(self) -> list[str]:
        """The paths of all files, sorted."""
        return sorted(_walk(self._root, ""))

    def content(self, path: str) -> bytes:
        """The content of a file."""
        return bytes(self._file(path).content)

    def overwrite(self, path: str, content: bytes) -> None:
        """Replace a file's content without any program noticing, durably."""
        node = self._file(path)
        node.content = bytearray(content)
        node.synced = bytearray(content)
        node.pending = []

    def flip_bit(self, path: str, bit: int) -> None:
        """Flip one bit of a file."""
        content = bytearray(self.content(path))
        content[bit // 8] ^= 1 << bit % 8
        self.overwrite(path, bytes(content))

    def spoil(self, path: str, start: int, stop: int) -> None:
        """Make every read that touches these bytes of a file fail with EIO."""
        self._file(path).unreadable = range(start, stop)

    def relent(self) -> None:
        """Cancel all planned faults."""
        self._faults.clear()

    def forget_unsynced(self, handle: int) -> None:
        """Lose the writes to a file since its last sync, as after a failed sync."""
        self._handles[handle].pending = []

    def lose_unsynced(self) -> None:
        """Lose all that was written and not synced, as when syncing the whole has failed."""
        for node in _nodes(self._root):
            node.has_failed = node.has_failed or bool(node.pending)
            node.pending = []

    def fail_write_back(self, path: str) -> None:
        """Lose the unsynced writes to a file, as when the system has tried to write them by itself."""
        node = self._file(path)
        if node.pending:
            node.pending = []
            node.has_failed = self._is_open(node)
            self._has_failed = True

    # -- the port

    def open(self, path: str, *, create: bool = False) -> int:
        if create:
            self._step("create", path)
            directory, name = self._parent(path)
            if name in directory.entries:
                raise _error(errno.EEXIST, path)
            node = _Node()
            self._change([(directory, name, node)])
        else:
            self._alive()
            node = self._file(path)
            self._read_step(f"open {path}", path)
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = node
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        node = self._handles.pop(handle)
        del self._paths[handle]
        if node.locked_by == handle:
            node.locked_by = -1
        if not self._is_open(node):
            node.has_failed = False  # the system may drop what it knows of the file

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        self._alive()
        node = self._handles[handle]
        path = self._paths[handle]
        self._read_step(f"read {path} {offset} {length}", path)
        if offset < node.unreadable.stop and offset + length > node.unreadable.start:
            raise _error(errno.EIO, "read")
        return bytes(node.content[offset : offset + length])

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        taken = bytes(data)
        if self._step("write", f"{handle} {offset} {len(taken)}") == "short" and len(taken) > 1:
            taken = taken[: len(taken) // 2]
        node = self._handles[handle]
        end = offset + len(taken)
        room = self._room()
        if room is not None and end - len(node.content) > room:
            end = max(offset, len(node.content) + room)
            taken = taken[: end - offset]
            if not taken:
                raise _error(errno.ENOSPC, "write")
        self._grow(node, end)
        node.content[offset:end] = taken
        node.holes.difference_update(range(offset // _BLOCK, -(-end // _BLOCK)))
        node.pending.append((offset, taken))
        self._after()
        return len(taken)

    def fdatasync(self, handle: int) -> None:
        node = self._handles[handle]
        try:
            self._step("fdatasync", str(handle))
        except OSError:
            self.forget_unsynced(handle)  # the kernel marks the pages clean nevertheless
            raise
        if node.has_failed:
            node.has_failed = False
            raise _error(errno.EIO, "fdatasync")
        _bring(node.synced, node.pending)
        node.pending = []
        self.syncs += 1
        self._after()

    def sync_whole(self, handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        if not self.wholes:
            return False
        for path in paths:
            self._find(path)
        nodes = list(_nodes(self._root))
        try:
            self._step("sync_whole", str(handle))
        except OSError:
            self.lose_unsynced()
            raise
        for node in nodes:
            _bring(node.synced, node.pending)
            self.syncs += bool(node.pending)
            node.pending = []
        for change in self._changes:
            _apply(change)
        self._changes = []
        if self._has_failed:
            self._has_failed = False
            raise _error(errno.EIO, "sync_whole")
        self._after()
        return True

    def allocate(self, handle: int, offset: int, length: int) -> bool:
        self._step("allocate", f"{handle} {offset} {length}")
        node = self._handles[handle]
        room = self._room()
        if room is not None and offset + length - len(node.content) > room:
            raise _error(errno.ENOSPC, "allocate")
        self._grow(node, offset + length)
        node.pending.append((offset + length, b""))
        self._after()
        return True

    def punch(self, handle: int, offset: int, length: int) -> bool:
        self._step("punch", f"{handle} {offset} {length}")
        if not self.punches:
            return False
        node = self._handles[handle]
        node.content[offset : offset + length] = bytes(length)
        for at in range(offset, offset + length, _BLOCK):
            node.pending.append((at, _Blank(_BLOCK)))
        node.holes.update(range(offset // _BLOCK, (offset + length) // _BLOCK))
        self._after()
        return True

    def truncate(self, handle: int, length: int) -> None:
        self._step("truncate", f"{handle} {length}")
        node = self._handles[handle]
        self._grow(node, length)
        del node.content[length:]
        node.pending.append(length)
        self._after()

    def size(self, handle: int) -> int:
        self._alive()
        return len(self._handles[handle].content)

    def lock(self, handle: int) -> bool:
        node = self._handles[handle]
        if node.locked_by not in (-1, handle):
            return False
        node.locked_by = handle
        return True

    def mkdir(self, path: str) -> None:
        self._step("mkdir", path)
        directory, name = self._parent(path)
        if name in directory.entries:
            raise _error(errno.EEXIST, path)
        self._change([(directory, name, _Directory())])

    def rename(self, source: str, target: str) -> None:
        self._step("rename", f"{source} {target}")
        here, name = self._parent(source)
        there, new_name = self._parent(target)
        if name not in here.entries:
            raise _error(errno.ENOENT, source)
        self._change([(there, new_name, here.entries[name]), (here, name, None)])

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        self._file(path)
        directory, name = self._parent(path)
        self._change([(directory, name, None)])

    def rmdir(self, path: str) -> None:
        self._step("rmdir", path)
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        directory, name = self._parent(path)
        self._change([(directory, name, None)])

    def listdir(self, path: str) -> list[str]:
        self._alive()
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        self._alive()
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def kind(self, path: str) -> str:
        self._alive()
        parent, _, name = path.rpartition("/")
        try:
            entry = self._directory(parent).entries.get(name)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        if isinstance(entry, _Directory):
            return "directory"
        return "" if entry is None else "file"

    def is_at(self, handle: int, path: str) -> bool:
        self._alive()
        try:
            return self._file(path) is self._handles[handle]
        except (FileNotFoundError, IsADirectoryError):
            return False

    def fsync_dir(self, path: str) -> None:
        self._step("fsync_dir", path)
        directory = self._directory(path)
        later: list[list[_Change]] = []
        for change in self._changes:
            if any(where is directory for where, _, _ in change):
                _apply(change)
            else:
                later.append(change)
        self._changes = later
        self._after()

    # -- internal

    def _alive(self) -> None:
        if self._off:
            raise PowerCut

    def _read_step(self, what: str, path: str) -> None:
        self.reads += 1
        error = self._read_faults.get(self.reads) or self.read_error or self._barred.get(path, 0)
        if error:
            self.failed_reads.append(f"{self.reads} {what}")
            raise _error(error, path)

    def _step(self, what: str, about: str) -> Fault | None:
        self._alive()
        self.operations += 1
        self.log.append(f"{self.operations} {what} {about}")
        fault = self._faults.get(self.operations)
        if fault == "crash":
            self._off = True
            raise PowerCut
        if fault == "enospc":
            raise _error(errno.ENOSPC, about)
        if fault == "eio":
            raise _error(errno.EIO, about)
        return fault

    def _after(self) -> None:
        if self._faults.get(self.operations) == "crash after":
            self._off = True
            raise PowerCut

    def _change(self, change: list[_Change]) -> None:
        for directory, name, entry in change:
            if entry is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = entry
        self._changes.append(change)
        self._after()

    def _grow(self, node: _Node, length: int) -> None:
        if length > len(node.content):
            node.content.extend(bytes(length - len(node.content)))

    def _room(self) -> int | None:
        if self.capacity is None:
            return None
        nodes = [self._file(path) for path in self.files()]
        used = sum(len(node.content) - _BLOCK * len(node.holes) for node in nodes)
        return max(0, self.capacity - used)

    def _is_open(self, node: _Node) -> bool:
        return any(each is node for each in self._handles.values())

    def _find(self, path: str) -> _Node | _Directory:
        entry: _Node | _Directory = self._root
        for part in path.strip("/").split("/") if path.strip("/") else ():
            if not isinstance(entry, _Directory) or part not in entry.entries:
                raise _error(errno.ENOENT, path)
            entry = entry.entries[part]
        return entry

    def _file(self, path: str) -> _Node:
        entry = self._find(path)
        if isinstance(entry, _Directory):
            raise _error(errno.EISDIR, path)
        return entry

    def _directory(self, path: str) -> _Directory:
        entry = self._find(path)
        if not isinstance(entry, _Directory):
            raise _error(errno.ENOTDIR, path)
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _error(number: int, about: str) -> OSError:
    return OSError(number, os.strerror(number), about)


def _apply(change: list[_Change]) -> None:
    for directory, name, entry in change:
        if entry is None:
            directory.synced.pop(name, None)
        else:
            directory.synced[name] = entry


def _bring(settled: bytearray, pending: list[tuple[int, bytes] | int]) -> None:
    """Write these operations to disk."""
    for operation in pending:
        if isinstance(operation, int):
            del settled[operation:]
            settled.extend(bytes(operation - len(settled)))
        else:
            offset, data = operation
            settled.extend(bytes(max(0, offset + len(data) - len(settled))))
            settled[offset : offset + len(data)] = data


def _survive(node: _Node, rng: random.Random) -> _Node:
    kept: list[tuple[int, bytes] | int] = []
    must_cut = False
    for operation in reversed(node.pending):
        if isinstance(operation, int):
            if must_cut or rng.random() < 0.5:
                kept.append(operation)
                must_cut = True
            continue
        offset, data = operation
        fate = rng.random()
        if fate < 0.4:
            continue
        if fate < 0.6 and not isinstance(data, _Blank):
            kept.extend(
                (offset + at, data[at : at + _SECTOR])
                for at in range(0, len(data), _SECTOR)
                if rng.random() < 0.5
            )
        else:
            kept.append(operation)
        must_cut = True
    survivor = _Node()
    survivor.synced = bytearray(node.synced)
    _bring(survivor.synced, kept[::-1])
    survivor.content = bytearray(survivor.synced)
    return survivor


def _survive_directory(directory: _Directory, rng: random.Random) -> _Directory:
    survivor = _Directory()
    for name, entry in directory.synced.items():
        if isinstance(entry, _Directory):
            survivor.entries[name] = _survive_directory(entry, rng)
        else:
            survivor.entries[name] = _survive(entry, rng)
    survivor.synced = dict(survivor.entries)
    return survivor


def _copy_directory(directory: _Directory) -> _Directory:
    twin = _Directory()
    for name, entry in directory.entries.items():
        twin.entries[name] = (
            _copy_directory(entry) if isinstance(entry, _Directory) else entry.copy()
        )
    twin.synced = dict(twin.entries)
    return twin


def _nodes(directory: _Directory) -> Iterator[_Node]:
    for entry in directory.entries.values():
        if isinstance(entry, _Directory):
            yield from _nodes(entry)
        else:
            yield entry


def _walk(directory: _Directory, path: str) -> list[str]:
    paths: list[str] = []
    for name, entry in directory.entries.items():
        if isinstance(entry, _Directory):
            paths += _walk(entry, f"{path}/{name}")
        else:
            paths.append(f"{path}/{name}")
    return paths
