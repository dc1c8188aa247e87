"""The second copy of metadata: what belongs to a stream lies in the stream's directory, too.

``<stream>/spare`` is a file of entries like the journal, of the keys that were said to belong to that
stream: their values and deletions, no deltas. It is written by the commit thread once the journal has
the same on disk, and is not synced for itself: it is for the day when the journal is damaged, not for the
moment after a power cut. A COMMIT record at its beginning holds the name of the stream, as its stamp how
many changes there had been when the file was written anew, with nothing of what was deleted before, and as
its value how long the file was then: of one that has lost its end it is not known what it did not have.

``meta/spare`` is the copy of all streams that have no directory yet; in place of a name it has none. A
deletion without a stamp says there that a key is not kept in it any more. A journal that was cut back may
have the note of a stream of which this copy knows nothing more, though it was written anew since: what the
journal has lost is that the stream was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..format.entries import (
    DELETE,
    FILE_HEADER_BYTES,
    PUT,
    SPARE_MAGIC,
    KeyChange,
    SpareWrite,
    Values,
    decode_file_header,
    key_and_value,
    put_stamp,
    split_stamp,
)
from ..format.record import COMMIT, OVERHEAD, U64, scan
from ..io.files import FileSystem
from ..io.findings import Finding
from .journal import Journal, read_all

SPARE: Final = "spare"
UNSETTLED: Final = "\0unsettled/"
"""What the keys of the notes begin with that a stream has no directory yet."""
_REWRITE_MIN: Final = 256 * 1024
_REWRITE_RATIO: Final = 4
_KEYS_SHOWN: Final = 5


class Spare:
    """What a stream's copy says: by key the last change, and the value or None for a deletion."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.entries: dict[str, tuple[int, bytes | None]] = {}
        self.salt = 0
        self.end = 0  # where to go on writing; 0 if it has to be written anew
        self.fault = ""  # what is wrong with it
        self.changes = 0
        """So many there had been when it was written anew; 0 if that is not said, or its end is lost."""


def read_spare(fs: FileSystem, directory: str, name: str | None) -> Spare | None:
    """The copy in a stream's directory, None if there is none. The name, if unknown, is in the file.

    Raises StoreFormatError.
    """
    path = f"{directory}/{SPARE}"
    if fs.kind(path) != "file":
        return None
    data = read_all(fs, path)
    spare = Spare(name or "", path)
    header = decode_file_header(SPARE_MAGIC, data, path)
    if header is None:
        spare.fault = "has no readable header" if data.strip(b"\0") else "is empty"
        return spare
    _, spare.salt = header
    end, owner, whole = FILE_HEADER_BYTES, None, b""
    for item in scan(data, end, len(data), spare.salt):
        if item.kind == 0:
            spare.fault = "is damaged"
            continue
        key, value = key_and_value(data, item.offset, item.size, item.subject_len)
        if item.kind == COMMIT:
            owner, whole, spare.changes = key, value, item.timestamp_ns
        elif item.kind in (PUT, DELETE):
            change, _ = split_stamp(item.timestamp_ns)
            spare.entries[key] = (change, value if item.kind == PUT else None)
            if not change and item.kind == DELETE:
                del spare.entries[key]
        end = item.offset + item.size
    if owner is not None and name is not None and owner != name:
        spare.entries.clear()
        spare.fault = f"is that of stream {owner!r}"
    spare.name = name if name is not None else owner or ""
    spare.end = 0 if spare.fault else end
    if len(whole) != U64.size:
        spare.changes = 0
    elif end < U64.unpack(whole)[0]:
        spare.changes = spare.end = 0
    return spare


def mend(
    journal: Journal,
    spares: Mapping[str, Spare],
    report: Callable[[Finding], None],
    is_placed: Callable[[str], bool],
    *,
    in_use: bool,
) -> None:
    """Give a journal that was just read what it lost and the copies still have; report what from where.

    ``is_placed``: there is something where the directory of this stream would be. ``in_use``: there are
    streams, so a journal that is not there was lost.
    """
    heard = journal.changes
    journal.damaged |= journal.missing and in_use
    if journal.missing and journal.damaged:
        what = "there was no readable metadata journal in a store that is not new; one was made"
        report(Finding(journal.path, 0, what))
    for name, spare in spares.items():
        if spare.fault:
            what = f"the copy of metadata {spare.fault}; it is made anew"
            report(Finding(spare.path, 0, what, name))
    for spare, keys in _merge(journal, spares):
        journal.damaged = True  # it is to be written anew, with these
        where = "beside the stream" if spare.name else "beside it"
        what = f"the journal does not have {_listed(keys)}; taken from the copy {where}"
        report(Finding(spare.path, 0, what, spare.name))
    shared = spares.get("")
    if shared is None or shared.fault:
        return
    if journal.damaged or shared.changes > heard:
        deleted = _deleted_since(journal, shared, is_placed)
        if deleted:
            journal.damaged = True
            what = f"the journal does not have the deletion of {_listed(deleted)}; the copy beside it has"
            report(Finding(shared.path, 0, what))
    journal.changes = max(journal.changes, shared.changes)


def _deleted_since(journal: Journal, shared: Spare, is_placed: Callable[[str], bool]) -> list[str]:
    """Forget the notes of streams that were deleted before the copy was written anew; returns their names.

    One that has got a directory is not in the copy either, and needs no note.
    """
    deleted: list[str] = []
    for key in [each for each in journal.values if each.startswith(UNSETTLED)]:
        name = key.removeprefix(UNSETTLED)
        is_older = 0 < journal.versions[key] <= shared.changes
        if is_older and key not in shared.entries and not is_placed(name):
            del journal.values[key], journal.versions[key]
            journal.deleted[key] = shared.changes
            deleted.append(name)
    return deleted


def _listed(keys: list[str]) -> str:
    """The first few of these keys, in words."""
    shown = ", ".join(map(repr, keys[:_KEYS_SHOWN]))
    return shown if len(keys) <= _KEYS_SHOWN else f"{shown} and {len(keys) - _KEYS_SHOWN} more"


def _merge(journal: Journal, spares: Mapping[str, Spare]) -> Iterator[tuple[Spare, list[str]]]:
    """Give the journal back what it lost; yields each copy that had something, with the keys.

    A journal that can be read is right: what it does not have was deleted, unless it knows nothing at
    all of a stream that has a directory, or the copy has changes it has never heard of.
    """
    heard = journal.changes
    for spare in spares.values():
        known = not spare.name or any(
            key in journal.values or key in journal.deleted or key in journal.loose
            for key in spare.entries
        )
        taken: list[str] = []
        for key, (change, value) in spare.entries.items():
            if known and not journal.damaged and change <= heard:
                if value is not None and key not in journal.values:
                    spare.end = 0  # it has missed a deletion
                continue
            if _take(journal, key, change, value):
                taken.append(key)
            journal.changes = max(journal.changes, change)
        if taken:
            yield spare, taken


def _take(journal: Journal, key: str, change: int, value: bytes | None) -> bool:
    """Take one key from a copy if it is newer there; whether it was."""
    have = journal.values.get(key)
    version = journal.versions.get(key, journal.deleted.get(key, -1))
    if change <= version:
        return False
    if value is None:
        journal.values.pop(key, None)
        journal.versions.pop(key, None)
        journal.loose.pop(key, None)
        journal.deleted[key] = change
        return have is not None
    if not version and have is not None and have[0] == value and key not in journal.loose:
        return False  # it has no stamp yet: this is the same value
    deltas: list[bytes] = []
    loose = journal.loose.pop(key, [])
    for stamp, delta in loose:
        if split_stamp(stamp) != (change, len(deltas) + 1):
            break
        deltas.append(delta)
    if deltas != [delta for _, delta in loose]:
        journal.loose[key] = loose[len(deltas) :]
    journal.values[key] = (value, deltas)
    journal.versions[key] = change
    journal.deleted.pop(key, None)
    return True


class Spares:
    """The owner's side: which keys are copied where, and what of them is to be written.

    ``directory_of`` tells the directory of a stream, None if it has none, and where the copy is for those
    that have none; ``stale`` is where the commit thread puts the paths it could not write to.
    """

    def __init__(
        self,
        found: Mapping[str, Spare],
        directory_of: Callable[[str], str | None],
        stale: set[str],
        new_salt: Callable[[], int],
    ) -> None:
        self._directory_of = directory_of
        self._stale = stale
        self._new_salt = new_salt
        self._homes: dict[str, _Home] = {}  # by key
        self._by_stream: dict[str, _Home] = {}
        self._found = dict(found)
        self._shared = _Copy("", self._found.pop("", None))
        self._dirty: dict[_Copy, None] = {}
        self._flying: list[list[_Copy]] = []

    @property
    def staged(self) -> bool:
        return bool(self._dirty)

    def keep(self, key: str, stream: str, version: int | None) -> None:
        """From here on keep a copy of this key there; ``version`` is what it has now, if anything."""
        home = self._by_stream.get(stream)
        if home is None:
            copy = self._shared
            if self._directory_of(stream) is not None:
                copy = _Copy(stream, self._found.pop(stream, None))
            home = self._by_stream[stream] = _Home(copy)
        copy = home.copy
        is_new = key not in home.keys
        home.keys[key] = None
        self._homes[key] = home
        if version is None or not is_new:
            return
        if copy.found is None or copy.found.get(key, (-1, None))[0] != version:
            copy.end = 0
        if not copy.end:
            self._dirty[copy] = None

    def changed(self, entry: KeyChange, key: str) -> None:
        home = self._homes.get(key)
        if home is None:
            return
        if entry.kind == DELETE:
            del self._homes[key]
            del home.keys[key]
        self._stage(home.copy, entry)

    def _stage(self, copy: _Copy, entry: KeyChange) -> None:
        if copy.end:
            copy.staged.append(entry)
        self._dirty[copy] = None

    def settle(self, stream: str) -> None:
        """The stream has got a directory: its copy goes there."""
        home = self._by_stream.get(stream)
        if home is not None and home.copy is self._shared:
            self._leave(home)
            home.copy = _Copy(stream, None)
            home.copy.homes[home] = None
            if home.keys:
                self._dirty[home.copy] = None

    def unsettle(self, stream: str) -> None:
        """The stream has no directory after all."""
        home = self._by_stream.get(stream)
        if home is not None and home.copy is not self._shared:
            self._dirty.pop(home.copy, None)
            home.copy = self._shared
            self._shared.homes[home] = None
            self._shared.end = 0
            self._dirty[self._shared] = None

    def _leave(self, home: _Home) -> None:
        """The keys of a stream are not kept in the copy of many any more."""
        del self._shared.homes[home]
        for key in home.keys:
            self._stage(self._shared, KeyChange(DELETE, key.encode(), b""))

    def drop(self, stream: str) -> None:
        """The stream is deleted, and its directory with the copy."""
        self._found.pop(stream, None)
        home = self._by_stream.pop(stream, None)
        if home is None:
            return
        if home.copy is self._shared:
            self._leave(home)
        else:
            self._dirty.pop(home.copy, None)
            home.copy.homes.clear()  # they know each other, and are freed at once so
        for key in home.keys:
            del self._homes[key]

    def take(self, values: Values, versions: Mapping[str, int], changes: int) -> list[SpareWrite]:
        """What the next batch is to write. ``changes``: so many there are, with those of the batch."""
        copies, self._dirty = [*self._dirty], {}
        self._flying.append(copies)
        writes: list[SpareWrite] = []
        for copy in copies:
            directory = self._directory_of(copy.stream)
            if directory is None:
                continue
            path = f"{directory}/{SPARE}"
            if path in self._stale:
                self._stale.discard(path)
                copy.end = 0
            copy.found = None
            writes.append(copy.write(path, values, versions, changes, self._new_salt))
        return writes

    def complete(self) -> None:
        if self._flying:
            del self._flying[0]

    def fail(self) -> None:
        """Have these copies written anew: none in flight was written."""
        for copies in self._flying:
            for copy in copies:
                home = self._by_stream.get(copy.stream)
                if copy is self._shared or (home is not None and home.copy is copy):
                    copy.end = 0
                    self._dirty[copy] = None
        self._flying.clear()


class _Copy:
    """One file as far as it is written: the copy of one stream, or of all that have no directory."""

    def __init__(self, stream: str, found: Spare | None) -> None:
        self.stream = stream
        self.homes: dict[_Home, None] = {}  # what is kept in it
        self.found: dict[str, tuple[int, bytes | None]] | None  # until it is written to
        self.found = found.entries if found is not None else None
        self.salt = found.salt if found is not None else 0
        self.end = found.end if found is not None else 0
        self.live = self.end  # about so much of it is not superseded
        self.staged: list[KeyChange] = []

    def write(
        self,
        path: str,
        values: Values,
        versions: Mapping[str, int],
        changes: int,
        new_salt: Callable[[], int],
    ) -> SpareWrite:
        staged, self.staged = self.staged, []
        if self.end and self.end <= max(_REWRITE_MIN, _REWRITE_RATIO * self.live):
            offset = self.end
            self.end += _size(staged)
            return SpareWrite(path, offset, staged, self.salt, False, False)
        self.salt = new_salt()
        entries = [
            KeyChange(PUT, key.encode(), values[key][0], put_stamp(versions[key]))
            for home in self.homes
            for key in home.keys
            if key in values
        ]
        name = self.stream.encode()
        self.end = self.live = FILE_HEADER_BYTES + OVERHEAD + len(name) + U64.size + _size(entries)
        entries.insert(0, KeyChange(COMMIT, name, U64.pack(self.end), changes))
        return SpareWrite(path, 0, entries, self.salt, True, not self.stream)


class _Home:
    """The keys of one stream, and where they are copied."""

    __slots__ = ("copy", "keys")

    def __init__(self, copy: _Copy) -> None:
        self.copy = copy
        self.keys: dict[str, None] = {}
        copy.homes[self] = None


def _size(entries: list[KeyChange]) -> int:
    """How long the records of these are."""
    return sum([OVERHEAD + len(key) + len(value) for _, key, value, _, _ in entries])
