"""Where the records of groups lie: one key-value bucket for static groups, one for elastic ones.

The buckets and their keys are those of the shipped Go implementation. The one that is missing is made with
the first group; reading never makes one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeVar

from ...api.errors import Errors
from ...client import Entry, JetStream, KeyExistsError, KeyNotFoundError, KeyValue, Stream, Watch
from ...client.publish.headers import PublishOptions
from ...client.seam import api_of, change_key
from ...errors import JetStreamApiError
from ..errors import GroupError, GroupExistsError, GroupNotFoundError, GroupRecordError
from ..record.names import (
    ELASTIC_BUCKET,
    STATIC_BUCKET,
    check_group_name,
    check_stream_name,
    group_of,
    key_of,
)
from ..record.records import LIMITS, ElasticGroup, StaticGroup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

G = TypeVar("G", StaticGroup, ElasticGroup)
ATTEMPTS: Final = 64
"""How often a change is tried on records that others change at the same time. Each time one succeeds."""

_NOT_FOUND: Final = Errors.STREAM_NOT_FOUND.err_code
_READ_AT_ONCE: Final = 64
_OTHER: Final = {
    "static": "the existing static consumer group config doesn't match ours: {}; it is fixed, as its "
    "consumers would be handed messages with numbers both ways; take another name, for a group that follows "
    "it (docs/groups.md, Changing partitions), or delete it first: then everything is handled again",
    "elastic": "the existing elastic consumer group config can not be updated to the requested one, please "
    "delete the existing elastic consumer group and create a new one: {}",
}
_LIMITED: Final = (
    "the existing elastic consumer group has other limits: {}; elastic.update, or headrace group elastic "
    "edit, changes them"
)
_CHANGEABLE: Final = (
    "the existing elastic consumer group config can not be updated to the requested one, not by creating "
    "it: {}; elastic.change, or headrace group elastic change, does it while the group works"
)
_DELETED: Final = {"KV-Operation": "DEL"}
_EXISTS: Final = Errors.STREAM_NAME_EXISTS.err_code


class FoundGroups(NamedTuple, Generic[G]):
    """The groups of a stream, and what is wrong with the records that cannot be read."""

    groups: list[G]
    damaged: dict[str, GroupRecordError]

    def readable(self) -> list[G]:
        """The groups, if all their records can be read. Raises GroupRecordError."""
        if self.damaged:
            raise GroupRecordError("; ".join(map(str, self.damaged.values())))
        return self.groups


class Records(Generic[G]):
    """The records of one kind of group. Nothing is asked of the server until a method is called.

    Every read but a watch goes to the leader of the bucket: what one call has stored the next one finds, in
    a cluster too.

    Args:
        kind: ``StaticGroup`` or ``ElasticGroup``.

    Attributes:
        word: ``static`` or ``elastic``, for texts.
    """

    def __init__(self, js: JetStream, kind: type[G]) -> None:
        self._js = js
        self._kind: type[G] = kind
        self._kv: KeyValue | None = None
        self.word = "static" if kind is StaticGroup else "elastic"
        self.bucket = STATIC_BUCKET if kind is StaticGroup else ELASTIC_BUCKET

    # The bucket

    async def open(self) -> KeyValue:
        """The bucket. Raises GroupNotFoundError if there is none, as no group was ever created."""
        if self._kv is None:
            try:
                await self._js.key_value(self.bucket)
            except JetStreamApiError as error:
                if error.err_code != _NOT_FOUND:
                    raise
                raise self._missing(error) from error
            self._kv = self._led()
        return self._kv

    async def make(self, replicas: int) -> KeyValue:
        """The bucket, created with ``replicas`` if there is none."""
        try:
            return await self.open()
        except GroupNotFoundError:
            pass
        try:
            # As the other implementations make it.
            await self._js.create_key_value(
                self.bucket, num_replicas=replicas, direct=True, message_ttl=False
            )
        except JetStreamApiError as error:
            if error.err_code != _EXISTS:  # somebody else was first, with other settings
                raise
        return await self.open()

    def _led(self) -> KeyValue:
        """The bucket, read through its leader: a copy that lags would deny a group just created."""
        return KeyValue(api_of(self._js), self._stream(), self.bucket)

    def _stream(self) -> Stream:
        """The stream behind the bucket; as it was not asked for its settings, its leader is read from."""
        return Stream(api_of(self._js), f"KV_{self.bucket}")

    # One record

    async def get(self, stream: str, group: str) -> G:
        """The group's record. Raises GroupNotFoundError, GroupRecordError."""
        key = _key(stream, group)
        bucket = await self.open()
        try:
            entry = await bucket.get(key)
        except KeyNotFoundError as error:
            raise self.not_found(stream, group) from error
        except JetStreamApiError as error:
            if error.err_code != _NOT_FOUND:
                raise
            raise self._missing(error) from error
        return self._decode(stream, group, entry)

    async def stored_at(self, stream: str, group: str) -> int:
        """When the group's record was stored, in nanoseconds since the Unix epoch. Raises
        GroupNotFoundError."""
        bucket = await self.open()
        try:
            return (await bucket.get(_key(stream, group))).created_ns
        except KeyNotFoundError as error:
            raise self.not_found(stream, group) from error

    async def create(self, record: G) -> G:
        """Store a record that is not there yet; the bucket must exist. Raises KeyExistsError if it is."""
        bucket = await self.open()
        revision = await bucket.create(_key(record.stream, record.name), record.encode())
        return dataclasses.replace(record, revision=revision)

    async def put(self, record: G) -> G:
        """Store a record, whatever was there."""
        bucket = await self.open()
        revision = await bucket.put(_key(record.stream, record.name), record.encode())
        return dataclasses.replace(record, revision=revision)

    async def update(self, record: G, revision: int) -> G:
        """Store a record in place of ``revision``. Raises KeyExistsError if that is not the newest."""
        bucket = await self.open()
        stored = await bucket.update(_key(record.stream, record.name), record.encode(), revision)
        return dataclasses.replace(record, revision=stored)

    async def delete(self, stream: str, group: str, *, revision: int | None = None) -> None:
        """Remove a record; with ``revision`` only that one. Raises KeyExistsError if it is another."""
        bucket = await self.open()
        await bucket.delete(_key(stream, group), revision=revision)

    # Creation, which others may try at the same time

    async def same_as(self, wanted: G) -> G | None:
        """The group of that name, if it is the same; None if there is none. Raises GroupExistsError."""
        try:
            stored = await self.get(wanted.stream, wanted.name)
        except GroupNotFoundError:
            return None
        if differences := stored.differences(wanted):
            has = f"group {wanted.name!r} of stream {wanted.stream!r} has {'; '.join(differences)}"
            raise GroupExistsError(_refusal(self.word, differences).format(has))
        return stored

    async def create_or_get(self, wanted: G, prepare: Callable[[], Awaitable[G]]) -> tuple[G, bool]:
        """Store what ``prepare`` makes of it; or what there is, if it is the same. Whether it is new, too.

        Raises:
            GroupExistsError: the group exists with other settings.
        """
        stored = await self.same_as(wanted)
        if stored is not None:
            return stored, False
        complete = await prepare()
        try:
            return await self.create(complete), True
        except KeyExistsError as error:  # somebody else was faster
            stored = await self.same_as(wanted)
            if stored is None:
                raise self.contended(wanted.stream, wanted.name) from error
            return stored, False

    # Deletion, which a second call can complete

    async def bury(self, stream: str, group: str) -> G:
        """Mark a record as deleted, and return what it was. Raises GroupNotFoundError, GroupRecordError.

        The mark carries the record, so that whoever calls again after a failure still learns what has to
        be removed. To everybody else it is a deletion like any other.
        """
        key = _key(stream, group)
        bucket = await self.open()
        for _ in range(ATTEMPTS):
            buried = await self.buried(stream, group)
            if buried is not None:
                return buried
            record = await self.get(stream, group)
            options: PublishOptions = {"expected_last_subject_sequence": record.revision}
            try:
                revision = await change_key(bucket, key, record.encode(), _DELETED, **options)
            except KeyExistsError:
                continue  # changed meanwhile
            return dataclasses.replace(record, revision=revision)
        raise self.contended(stream, group)

    async def buried(self, stream: str, group: str) -> G | None:
        """The record of a group whose deletion was begun and not completed."""
        bucket = await self.open()
        try:
            await bucket.get(_key(stream, group))
        except KeyNotFoundError as error:
            entry = error.entry
        else:
            return None
        if entry is None or entry.operation != "delete" or not entry.value:
            return None
        return self._decode(stream, group, entry)

    async def forget(self, record: G) -> None:
        """A deletion is complete. Where the group was created anew meanwhile nothing is to be done."""
        with contextlib.suppress(KeyExistsError):
            await self.delete(record.stream, record.name, revision=record.revision)

    # Several, and changes

    async def list(self, stream: str) -> FoundGroups[G]:
        """The records of a stream's groups, by name; none where the bucket is missing."""
        check_stream_name(stream)
        try:
            bucket = await self.open()
        except GroupNotFoundError:
            return FoundGroups([], {})
        prefix = f"$KV.{self.bucket}."
        info = await self._stream().info(subjects=prefix + key_of(stream, "*"))
        keys = sorted(subject.removeprefix(prefix) for subject in info.state.subjects)
        found: FoundGroups[G] = FoundGroups([], {})
        for first in range(0, len(keys), _READ_AT_ONCE):
            await asyncio.gather(
                *(self._look(bucket, stream, key, found) for key in keys[first:][:_READ_AT_ONCE])
            )
        groups = sorted(found.groups, key=lambda each: each.name)
        return FoundGroups(groups, dict(sorted(found.damaged.items())))

    async def _look(self, bucket: KeyValue, stream: str, key: str, found: FoundGroups[G]) -> None:
        """Read one of a stream's records, if it is still there."""
        group = group_of(stream, key) or ""
        try:
            found.groups.append(self._decode(stream, group, await bucket.get(key)))
        except KeyNotFoundError:
            pass  # only the mark of a deletion
        except GroupRecordError as error:
            found.damaged[group] = error

    async def watch(
        self,
        stream: str,
        group: str,
        *,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Changes[G]:
        """The record as it is and as it changes. Raises GroupNotFoundError where there is no bucket."""
        key = _key(stream, group)
        bucket = await self.open()
        watch = await bucket.watch(key, on_error=on_error)
        return Changes(watch, lambda entry: self._decode(stream, group, entry))

    # Texts

    def not_found(self, stream: str, group: str) -> GroupNotFoundError:
        """What to raise where there is no such group."""
        word = self.word
        return GroupNotFoundError(
            f"can not get the current {word} consumer group's config: error getting the {word} consumer "
            f"group's config: not found (group {group!r} of stream {stream!r})"
        )

    def _missing(self, error: JetStreamApiError) -> GroupNotFoundError:
        """What to raise where the server has no such bucket, or not any more."""
        self._kv = None
        said = error.description.rpartition(": ")[2]  # the server's words
        return GroupNotFoundError(
            f"the {self.word} consumer group KV bucket doesn't exist: {said}; "
            "the first group that is created makes it"
        )

    def contended(self, stream: str, group: str) -> GroupError:
        """What to raise where others were faster each time."""
        return GroupError(
            f"{self.word} group {group!r} of stream {stream!r} is being changed by others, who were faster "
            "each time; call again"
        )

    def _decode(self, stream: str, group: str, entry: Entry) -> G:
        record: G = self._kind.decode(stream, group, entry.value, entry.revision)
        return record


class Changes(Generic[G]):
    """A group's record as it changes: ``async with await records.watch(…) as changes: async for …``.

    What is there comes first. None says that the record was removed. A record that cannot be read raises
    GroupRecordError; the iteration may go on behind it.
    """

    def __init__(self, watch: Watch[Entry], decode: Callable[[Entry], G]) -> None:
        self._watch = watch
        self._decode: Callable[[Entry], G] = decode

    def __aiter__(self) -> AsyncIterator[G | None]:
        return self

    async def __anext__(self) -> G | None:
        entry = await anext(self._watch)
        return self._decode(entry) if entry.operation == "put" else None

    async def stop(self) -> None:
        """End it."""
        await self._watch.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def _refusal(word: str, differences: list[str]) -> str:
    """What to say of a group that is there and is another one; the differences are put into it."""
    if all(each.startswith(LIMITS) for each in differences):
        return _LIMITED
    changeable = ("max_members", "partitioning_filters", *LIMITS)
    if word == "elastic" and all(each.startswith(changeable) for each in differences):
        return _CHANGEABLE
    return _OTHER[word]


def _key(stream: str, group: str) -> str:
    return key_of(check_stream_name(stream), check_group_name(group))
