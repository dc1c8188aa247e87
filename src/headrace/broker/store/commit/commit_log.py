"""The commit log: one write and one sync for a commit, however many files it has appended to.

What a commit appends is written to its files as ever, so that whoever reads finds it there, but these are
not synced: the bytes go into one batch of the log as well, and that is synced. The log has two files that
are written in turn, in place, filled before their first use: syncing them changes nothing but bytes. They
are not filled with zeros: a block of these is one that the disk has lost. Before a file is written anew, all
that its batches speak of has been synced where it belongs. After a crash the batches are written to their
places again (``recovery/replay.py``), before anything else is read.

Only what is appended goes this way. A commit that makes, cuts, renames or removes files syncs them itself;
``writer.py`` decides.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ....errors import StoreFailedError
from ..format.batch import (
    EMPTY_BYTES,
    HEADER_BYTES,
    LogHeader,
    Share,
    encode_batch,
    encode_log_header,
)
from ..io.files import FileSystem, is_full, write_all
from ..io.syncing import TOGETHER_MAX, Syncing

LOG_DIRECTORY: Final = "commit-log"
LOG_FILES: Final = ("0.log", "1.log")
_FILL: Final = b"\xff" * (512 * 1024)  # written in one step, some milliseconds
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_LATER: Final = 16  # times as many commits until a log is tried again for which there was no room


class LogShape(NamedTuple):
    """How large a commit log is, and what goes into it.

    Attributes:
        file_bytes: how large each of its two files becomes at most. It doubles each time it is full.
        first_bytes: how large they are made.
        after: it is made after so many commits that it would have taken, or at once where there was one.
        batch_bytes: a commit with more goes to its files alone.
        each_bytes: and so does one that has more for each of its files, on average,
        files_min: or fewer files.
    """

    file_bytes: int = 16 << 20
    first_bytes: int = 1 << 20
    after: int = 8
    batch_bytes: int = 4 << 20
    each_bytes: int = 64 << 10
    files_min: int = 1


LOG_SHAPE: Final = LogShape(batch_bytes=1 << 20, each_bytes=512, files_min=3)
"""What a store has: syncing one or two files, or files that get much, takes no longer than syncing a log."""


class CommitLog:
    """Belongs to the commit thread.

    ``say(log, in_use)`` says durably which one there is, when it has been made and before it goes.
    ``was_in_use``: the life before had one; ``is_said``: the directory still says that it is there.
    ``sync_journal`` syncs the journal of metadata, ``put_mark`` writes the watermark beside a file.

    Attributes:
        is_ready: whether it takes batches now.
        wants_tidying: whether ``tidy`` has something to do that nobody was told of.
        batches: how many were written.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        shape: LogShape,
        syncing: Syncing,
        new_salt: Callable[[], int],
        *,
        say: Callable[[int, bool], None],
        sync_journal: Callable[[], None],
        put_mark: Callable[[str, bytes], None],
        was_in_use: bool = False,
        is_said: bool = False,
    ) -> None:
        self.shape = shape
        self.is_ready = self.wants_tidying = False
        self.batches = 0
        self._fs = fs
        self.root: Final = root
        self._directory = f"{root}/{LOG_DIRECTORY}"
        self._paths = [f"{self._directory}/{name}" for name in LOG_FILES]
        self._syncing = syncing
        self._new_salt = new_salt
        self._say = say
        self._sync_journal, self._put_mark = sync_journal, put_mark
        self._is_said = is_said
        self._log = 0  # which one it is
        self._handles: list[int] = []
        self._sizes = [0, 0]
        self._seen = shape.after if was_in_use else 0
        self._making: Iterator[None] | None = None
        self._behind: tuple[dict[str, None], dict[str, None]] = ({}, {})
        self._journal_behind = [False, False]
        self._said: tuple[set[str], set[str]] = (set(), set())
        """The directories that a file's batches speak of, settled or not."""
        self._marks: dict[str, bytes] = {}  # watermarks of what is behind
        self._current = 0
        self._salt = 0
        self._at = 0  # where the next write goes; 0: the header is still to be written
        self._number = 0  # of the last batch
        self._began = 0  # the number of the last batch before the current file
        self._settled = self._settled_on_disk = 0

    # -- making and removing it

    def is_due(self) -> bool:
        """Whether it is to be made now, by ``make``. To be asked at each commit that it would take."""
        self._seen += 1
        if self._seen < self.shape.after or self._making is not None:
            return False
        self._making = self._steps()
        return True

    def make(self) -> bool:
        """One step of making it; whether there is more.

        Where there is no room, or nothing may be made in the store's directory, it is tried again later.
        """
        if self._making is None:
            return False
        try:
            next(self._making)
        except StopIteration:
            self._making = None
            self._seen = -_LATER * self.shape.after
            self.is_ready = bool(self._handles)
            return False
        except OSError as error:
            self._making = None
            self._seen = -_LATER * self.shape.after
            is_begun = bool(self._handles)
            self._close_files()
            if isinstance(error, FileNotFoundError):
                raise StoreFailedError(f"{self.root} was removed while in use") from error
            if not is_full(error) and error.errno not in _REFUSED:
                raise
            if is_begun:
                self._remove_files()
            return False
        return True

    def _steps(self) -> Iterator[None]:
        fs = self._fs
        if fs.kind(self._directory) not in ("", "directory") or any(map(fs.kind, self._paths)):
            return  # somebody else's, which stays: see ``recovery/replay.py``
        self._log = self._new_salt() << 32 | self._new_salt() | 1
        if not fs.exists(self._directory):
            fs.mkdir(self._directory)
            fs.fsync_dir(self.root)
        for path in self._paths:
            handle = fs.open(path, create=True)
            self._handles.append(handle)
            which = len(self._handles) - 1
            write_all(fs, handle, self._header(0), 0)
            self._sizes[which] = HEADER_BYTES
            while self._grow(which, min(self.shape.first_bytes, self.shape.file_bytes)):
                yield
        fs.fsync_dir(self._directory)
        self._say(self._log, True)
        self._is_said = True
        self._current, self._at, self._salt = 0, 0, self._new_salt()
        self._began = self._settled = self._settled_on_disk = self._number

    def _header(self, first: int) -> bytes:
        return encode_log_header(LogHeader(self._salt, first, self._log))

    def _grow(self, which: int, size: int) -> bool:
        """Fill some more of a file that is to become so large; whether it is not yet."""
        at = self._sizes[which]
        piece = _FILL[: size - at]
        if piece:
            write_all(self._fs, self._handles[which], piece, at)
            self._fs.fdatasync(self._handles[which])
        self._sizes[which] += len(piece)
        return self._sizes[which] < size

    def remove(self) -> None:
        """Sync what is behind, and take the log away. Raises StoreFailedError, OSError."""
        if not self.is_ready and self._making is None:
            self.say_that_it_is_gone()
            return
        self._making = None
        self._catch_up()
        self.is_ready = False
        self._seen = -_LATER * self.shape.after
        self._close_files()
        self._remove_files()

    def _remove_files(self) -> None:
        fs, older = self._fs, 1 - self._current
        for said in self._said:
            said.clear()
        self.say_that_it_is_gone()
        for path in (self._paths[older], self._paths[self._current]):
            if fs.exists(path):
                fs.unlink(path)
        if fs.exists(self._directory):
            fs.fsync_dir(self._directory)

    def say_that_it_is_gone(self) -> None:
        """Where the directory says that there is a log, and there is none: to be called after each commit.

        Where there is no room for that, it is tried again. Raises OSError.
        """
        if not self._is_said or self.is_ready or self._making is not None:
            return
        try:
            self._say(self._log, False)
        except OSError as error:
            if not is_full(error):
                raise
        else:
            self._is_said = False

    def _close_files(self) -> None:
        while self._handles:
            self._fs.close(self._handles.pop())

    def close(self) -> None:
        """Close its files, and leave them as they are."""
        self._making = None
        self.is_ready = False
        self._close_files()

    # -- batches

    def fits(self, nbytes: int, files: int) -> bool:
        """Whether it takes so many bytes for so many files."""
        most = min(self.shape.batch_bytes, self.shape.each_bytes * files)
        return files >= self.shape.files_min and nbytes <= most

    def write(self, shares: Sequence[Share], journal: Share | None) -> bool:
        """Put a batch on disk: return once it is there.

        False if it does not fit, or the disk has no room to write over what is there: then nothing of it
        counts, and the log may be gone. Raises StoreFailedError; OSError if the disk refuses the write.
        """
        every = [*shares, journal] if journal is not None else shares
        frame = self._encode(every)
        try:
            if not self._has_room(self._current, self._at, frame):
                if not self._has_room(1 - self._current, 0, frame):
                    return False
                self._switch()
                frame = self._encode(every)
            self._put(frame)
        except OSError as error:
            if not is_full(error):
                raise
            self.remove()
            return False
        behind, said = self._behind[self._current], self._said[self._current]
        for share in shares:
            path = f"{self.root}/{share.path}"
            directory = path.rpartition("/")[0]
            behind[path] = None
            said.add(directory)
            if share.mark:
                self._marks[directory + "/watermark"] = share.mark
        if journal is not None:
            self._journal_behind[self._current] = True
        return True

    def _has_room(self, which: int, at: int, frame: bytes) -> bool:
        """Whether the frame fits into a file there, with room left to say that all is settled."""
        return max(at, HEADER_BYTES) + len(frame) + EMPTY_BYTES <= self._sizes[which]

    def _encode(self, shares: Sequence[Share]) -> bytes:
        return encode_batch(self._number + 1, self._settled, shares, self._salt)

    def _put(self, frame: bytes) -> None:
        fs, handle = self._fs, self._handles[self._current]
        path = self._paths[self._current]
        data, at = frame, self._at
        if not at:
            data = self._header(self._number + 1) + frame
        write_all(fs, handle, data, at)
        try:
            fs.fdatasync(handle)
        except OSError as error:
            what = f"syncing the commit log: {error.strerror or error}"
            raise StoreFailedError(what) from error
        if not fs.is_at(handle, path):
            raise StoreFailedError(f"{path} was removed while in use")
        self._at = at + len(data)
        self._number += 1
        self._settled_on_disk = self._settled
        self.batches += 1

    def _switch(self) -> None:
        """Go on in the other file, from its beginning."""
        other = 1 - self._current
        while self._is_behind(other):
            self._sync_some(other)
        self._settled = max(self._settled, self._began)
        if self._settled_on_disk < self._began:
            # Or else, with the power gone in the middle of what follows, its batches would seem damaged.
            self._put(self._encode(()))
        self._current, self._at, self._salt = other, 0, self._new_salt()
        self._began = self._number
        self._said[other].clear()
        self.wants_tidying = True

    # -- syncing what is behind

    def tidy(self) -> bool:
        """Sync some of what the file speaks of that is not written now, and then let that file grow.

        Returns whether there is more to do. Raises StoreFailedError, OSError.
        """
        other = 1 - self._current
        if not self.is_ready:
            return False
        if self._is_behind(other):
            self._sync_some(other)
            return True
        self._settled = max(self._settled, self._began)
        size = min(self.shape.file_bytes, 2 * self._sizes[self._current])
        try:
            return self._sizes[other] < size and self._grow(other, size)
        except OSError as error:
            if not is_full(error):
                raise
            return False  # it is as large as it is

    def settle(self, directory: str) -> None:
        """See to it that a crash writes nothing again in this directory; syncs all that is behind for it.

        Raises StoreFailedError, OSError.
        """
        if not self.is_ready or not any(directory in said for said in self._said):
            return
        self._catch_up()
        self._settled = self._number
        if self.write((), None):
            for said in self._said:
                said.clear()

    def synced(self, paths: Iterable[str]) -> None:
        """These files were synced by themselves."""
        for behind in self._behind:
            if behind:
                for path in paths:
                    behind.pop(path, None)

    def marked(self, paths: Iterable[str]) -> None:
        """These watermarks were written by themselves."""
        if self._marks:
            for path in paths:
                self._marks.pop(path, None)

    def behind(self) -> list[str]:
        """The files that only the log has on disk."""
        return [path for behind in self._behind for path in behind]

    def _is_behind(self, which: int) -> bool:
        return bool(self._behind[which]) or self._journal_behind[which]

    def _catch_up(self) -> None:
        for which in (1 - self._current, self._current):
            while self._is_behind(which):
                self._sync_some(which)

    def _sync_some(self, which: int) -> None:
        behind = self._behind[which]
        some = list(islice(behind, TOGETHER_MAX))
        there = [path for path in some if self._fs.exists(path)]  # or else it was removed since
        if there:
            failed = self._syncing.sync(there)
            if failed is not None:
                path, error = failed
                raise StoreFailedError(f"syncing {path}: {error.strerror or error}") from error
        for path in some:
            del behind[path]
            beside = path.rpartition("/")[0] + "/watermark"
            mark = self._marks.pop(beside, None)
            if mark is not None and path in there:
                self._put_mark(beside, mark)
        if not behind and self._journal_behind[which]:
            self._sync_journal()
            self._journal_behind[which] = False
