"""Object store: things of any size, kept in a stream in chunks; shared with every other NATS client."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ...api.errors import Errors
from ...errors import ConfigurationError, HeadraceError, JetStreamApiError, OutcomeUnknownError
from ..calling import Progress, TransferProgress, checked
from ..jetstream.calls import Api
from ..jetstream.configuration import BUCKET_FIELDS, changed_bucket, known_bucket
from ..jetstream.message import JetStreamMessage
from ..jetstream.stored_message import StreamMessage, if_found
from ..jetstream.stream import Stream
from ..jetstream.streams import Streams
from ..jetstream.watch import Watch
from .descriptions import Descriptions
from .info import (
    CHUNK_BYTES_DEFAULT,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectLink,
    ObjectLinkError,
    ObjectNotFoundError,
    ObjectStoreOptions,
    ObjectStoreStatus,
    chunk_subject,
    decode_info,
    header_values,
    meta_subject,
    object_bucket_config,
    object_stream_name,
    text_map,
)
from .reader import ObjectReader
from .writer import Content, Source, clean_up, leftovers_of, write_chunks

_EXISTS: Final = Errors.STREAM_NAME_EXISTS.err_code


async def update_store(streams: Streams, bucket: str, options: ObjectStoreOptions) -> Stream:
    """Change what ``options`` name of the stream of a bucket; the rest stays."""
    wanted = object_bucket_config(bucket, options)
    with known_bucket(bucket):
        there = await streams.info(wanted.name)
        return await streams.change(
            there, changed_bucket(there.config, wanted, options, BUCKET_FIELDS)
        )


async def create_or_update_store(
    streams: Streams, bucket: str, options: ObjectStoreOptions
) -> Stream:
    """Make sure that there is a stream of a bucket that has what ``options`` name."""
    try:
        return await streams.put("CREATE", object_bucket_config(bucket, options))
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise
    return streams.told(await update_store(streams, bucket, options))


_ATTEMPTS: Final = 3  # to store chunks in their order, while leaders of a stream change

LEFTOVER_S: Final = 3600.0
LINKS_MAX: Final = 8  # a link may lead to a link; more in a row are taken for a circle

T = TypeVar("T")

HeaderValues = Mapping[str, str | Sequence[str]]


class ObjectStore:
    """One bucket of objects. Made by ``js.object_store(name)`` and ``js.create_object_store(name, …)``.

    An object has a name (any text), content of any size, and a description. It is there once ``put``
    returns, whole or not at all; a put of the same name replaces it.

    Attributes:
        bucket: its name.
    """

    def __init__(self, api: Api, stream: Stream, bucket: str) -> None:
        self._api = api
        self._stream = stream
        self._leftovers = leftovers_of(api.session, bucket)
        self._descriptions = Descriptions(api, stream, bucket, self._leftovers)
        self.bucket = bucket

    def __repr__(self) -> str:
        return f"<ObjectStore {self.bucket!r}>"

    async def status(self) -> ObjectStoreStatus:
        """The bucket's settings, and how much is in it. Raises BucketNotFoundError if it is gone."""
        with known_bucket(self.bucket):
            return ObjectStoreStatus.of(self.bucket, await self._stream.info())

    async def seal(self) -> None:
        """Let nothing be changed any more; for good."""
        await self._stream.update(sealed=True)

    # Putting

    async def put(
        self,
        name: str,
        content: Content,
        *,
        description: str = "",
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK_BYTES_DEFAULT,
        progress: Callable[[TransferProgress], object] | None = None,
    ) -> ObjectInfo:
        """Store ``content`` under ``name``, in place of what was there, and return what is known of it.

        At most about 10 MiB of the content are held at a time. A lost connection fails the put.

        Args:
            content: bytes, a file opened in binary mode, or an (asynchronous) iterable of bytes.
            chunk_size: bytes in each message; at most the server's ``max_payload``.
            progress: called now and then, on the connection's thread, which it must not block; see
                ``headrace.progress_bar``.

        Raises:
            ConfigurationError: name, content or chunk_size is not what is accepted.
            JetStreamApiError: the stream refused, as when it is full or sealed.
            ObjectDamagedError: the stream's leader changed while it was stored, and the chunks arrived
                in another order. Bytes, and files that can seek, are stored again first.
            OutcomeUnknownError: no answer came at the very end: it is stored, whole, or it is not.
            RequestTimeoutError, DisconnectedError, ConnectionClosedError: the server did not answer; it is
                not stored.

            Whatever is raised, also by ``content``, and when the call is cancelled or interrupted: what had
            been stored of it is removed, and an older object of this name stays. Where that cannot be, as
            the server is away, the next put over this connection does it.
        """
        meta_subject(self.bucket, name)  # refuses a bad name before anything is sent
        largest = self._api.session.info.max_payload
        if not 1 <= chunk_size <= largest:
            raise ConfigurationError(
                f"chunk_size is {chunk_size}; accepted: 1 to {largest}, the server's max_payload"
            )
        info = ObjectInfo(
            self.bucket,
            name,
            description,
            header_values(headers),
            text_map("metadata", metadata),
            chunk_size=chunk_size,
            nuid=self._new_id(),
        )
        source = Source(content)
        told = self._teller(checked(progress), source)
        for attempts_left in reversed(range(_ATTEMPTS)):
            chunks = chunk_subject(self.bucket, info.nuid)
            try:
                written = await write_chunks(
                    self._api, self._stream, chunks, content, chunk_size, self._leftovers, told
                )
                break
            except ObjectDamagedError:
                if not attempts_left or not source.rewind():
                    raise
                info = replace(info, nuid=self._new_id())
        info = replace(info, size=written.size, chunks=written.chunks, digest=written.sha.digest())
        return await _to_its_end(self._describe_new(info, chunks))

    async def put_file(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        description: str = "",
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK_BYTES_DEFAULT,
        progress: Callable[[TransferProgress], object] | None = None,
    ) -> ObjectInfo:
        """``put`` the content of a file. Raises as ``put``, and OSError."""
        file = await asyncio.to_thread(Path(path).open, "rb")
        try:
            return await self.put(
                name,
                file,
                description=description,
                headers=headers,
                metadata=metadata,
                chunk_size=chunk_size,
                progress=progress,
            )
        finally:
            await asyncio.to_thread(file.close)

    def _teller(self, progress: Progress | None, source: Source) -> Callable[[int], object] | None:
        if progress is None:
            return None
        total, stream = source.size(), object_stream_name(self.bucket)
        return lambda nbytes: progress(TransferProgress(stream, nbytes, total))

    # Getting

    def open(
        self, name: str, *, progress: Callable[[TransferProgress], object] | None = None
    ) -> ObjectReader:
        """Read an object piece by piece: ``async with store.open(name) as reader``.

        Entering raises ObjectNotFoundError, and ObjectLinkError for a link that leads to no object.
        ``progress`` is called with each chunk, as of ``put``.
        """
        return ObjectReader(self, name, checked(progress))

    async def get(
        self, name: str, *, progress: Callable[[TransferProgress], object] | None = None
    ) -> bytes:
        """The whole content of an object; a link is followed. ``progress``: as of ``put``.

        Raises:
            ObjectNotFoundError: there is none, or it was deleted.
            ObjectDamagedError: it is not what was put.
            ObjectLinkError: a link that leads to no object.
        """
        async with self.open(name, progress=progress) as reader:
            return await reader.read()

    async def get_file(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[TransferProgress], object] | None = None,
    ) -> ObjectInfo:
        """Write an object's content to a file, which appears only once it is complete and checked.

        ``progress``: as of ``put``. Raises as ``get``, and OSError. A file that is there is replaced.
        """
        target = Path(path)
        part = target.with_name(f".{target.name}.{self._new_id()}")
        async with self.open(name, progress=progress) as reader:
            file = await asyncio.to_thread(part.open, "xb")
            try:
                try:
                    async for chunk in reader:
                        await asyncio.to_thread(file.write, chunk)
                finally:
                    await asyncio.to_thread(file.close)
                await asyncio.to_thread(part.replace, target)
            except BaseException:
                await asyncio.to_thread(part.unlink, missing_ok=True)
                raise
            return reader.info

    async def info(self, name: str, *, include_deleted: bool = False) -> ObjectInfo:
        """What is known of an object or a link. Raises ObjectNotFoundError.

        ``include_deleted``: return the mark of a deletion, too, as long as it is kept.
        """
        info = await self._descriptions.last(name)
        if info is None or (info.deleted and not include_deleted):
            raise ObjectNotFoundError(self.bucket, name)
        return info

    async def list(self, *, include_deleted: bool = False) -> list[ObjectInfo]:
        """What is known of every object."""
        found: dict[str, ObjectInfo] = {}
        async with await self.watch() as watch:
            async for info in watch.initial():  # several of an object, if that was put meanwhile
                found[info.name] = info
        return [info for info in found.values() if include_deleted or not info.deleted]

    async def watch(
        self,
        *,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Watch[ObjectInfo]:
        """Objects as they are put, described and deleted, beginning with those there are.

        Args:
            updates_only: begin with what changes from now on.
            ignore_deletes: leave deletions out.
            on_error: as for ``Consumer.consume``.
        """
        ordered = await self._stream.ordered_consumer(
            filter_subject=f"$O.{self.bucket}.M.>",
            deliver_policy="new" if updates_only else "last_per_subject",
        )
        return await Watch._begin(
            self._stream,
            ordered,
            self._watched,
            lambda info: not (ignore_deletes and info.deleted),
            updates_only=updates_only,
            on_error=on_error,
        )

    # Changing

    async def update_meta(
        self,
        name: str,
        *,
        new_name: str = "",
        description: str | None = None,
        headers: HeaderValues | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Describe an object or a link anew, or rename it; None leaves a part as it is.

        Raises:
            ObjectNotFoundError: there is none, or it was deleted.
            ObjectExistsError: ``new_name`` is taken.
        """
        if new_name:
            meta_subject(self.bucket, new_name)  # refuses a bad name
        info = await self.info(name)
        info = replace(
            info,
            name=new_name or name,
            description=info.description if description is None else description,
            headers=info.headers if headers is None else header_values(headers),
            metadata=info.metadata if metadata is None else text_map("metadata", metadata),
        )
        renamed = bool(new_name) and new_name != name

        def check(last: ObjectInfo | None) -> None:
            if renamed:
                if last is not None and not last.deleted:
                    raise ObjectExistsError(f"bucket {self.bucket!r} has an object {new_name!r}")
            elif last is None or last.deleted or last.nuid != info.nuid:
                raise ObjectNotFoundError(self.bucket, name)

        described = await self._descriptions.replace(info, check)
        if renamed:
            await self._stream.purge(subject=meta_subject(self.bucket, name))
        return described

    async def delete(self, name: str) -> None:
        """Delete an object or a link; one that was deleted already is left alone.

        Raises ObjectNotFoundError if there never was one.
        """

        def check(last: ObjectInfo | None) -> None:
            if last is None:
                raise ObjectNotFoundError(self.bucket, name)

        last = await self._descriptions.last(name)
        if last is None:
            raise ObjectNotFoundError(self.bucket, name)
        if last.deleted:
            return
        mark = replace(last, size=0, chunks=0, digest=b"", deleted=True)
        await self._descriptions.replace(mark, check)

    async def remove_leftovers(self, *, older_than: float = LEFTOVER_S) -> int:
        """Remove content that belongs to no object, and return of how many it was.

        A put that fails cleans up after itself; one whose program or machine died cannot. What is younger
        than ``older_than`` seconds may be a put under way, and stays.
        """
        limit_ns = time.time_ns() - round(older_than * 1e9)
        content = (await self._stream.info(subjects=chunk_subject(self.bucket, ">"))).state.subjects
        owned = {chunk_subject(self.bucket, i.nuid) for i in await self.list(include_deleted=True)}
        removed = 0
        for subject in content.keys() - owned:
            youngest = await if_found(self._stream.get_last_message(subject))
            if (
                youngest is not None and youngest.timestamp_ns <= limit_ns
            ):  # None: removed meanwhile
                await self._stream.purge(subject=subject)
                removed += 1
        return removed

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Let ``name`` lead to another object, of this bucket or another.

        Raises:
            ObjectLinkError: the target was deleted, or is a link.
            ObjectExistsError: ``name`` is an object; a link would be replaced.
        """
        if target.deleted:
            raise ObjectLinkError(f"object {target.name!r} was deleted; a link would lead nowhere")
        if target.link is not None:
            raise ObjectLinkError(f"{target.name!r} is a link itself; link to what it leads to")
        return await self._add_link(name, ObjectLink(target.bucket, target.name))

    async def add_bucket_link(self, name: str, bucket: str) -> ObjectInfo:
        """Let ``name`` lead to a whole bucket. Raises ObjectExistsError as ``add_link``."""
        return await self._add_link(name, ObjectLink(bucket))

    async def _add_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        def check(last: ObjectInfo | None) -> None:
            if last is not None and last.link is None and not last.deleted:
                raise ObjectExistsError(f"bucket {self.bucket!r} has an object {name!r}")

        info = ObjectInfo(self.bucket, name, link=link, nuid=self._new_id())
        return await self._descriptions.replace(info, check)

    # Descriptions

    async def _describe_new(self, info: ObjectInfo, chunks: str) -> ObjectInfo:
        """The last step of a put."""
        try:
            described = await self._descriptions.replace(info, _anything)
        except OutcomeUnknownError as error:
            # It may be described all the same, so its content must stay until that is known.
            self._leftovers.note(info.nuid, info.name)
            error.add_note(
                f"{info.name!r} may be stored or not; if not, the next put of it over this connection "
                f"removes its content, which is on {chunks!r}"
            )
            raise
        except Exception as error:
            await clean_up(self._stream, chunks, error, self._leftovers)
            raise
        if self._leftovers:
            await self._remove_known_leftovers(info.name)
        return described

    async def _remove_known_leftovers(self, name: str) -> None:
        """Remove what earlier puts left behind, now that one of this name was stored. The put is done: if
        this fails it is an event of the connection, and the next put does it."""
        due = self._leftovers.due(name)
        try:
            owned = {info.nuid for info in await self.list(include_deleted=True)} if due else set()
            for nuid in due:
                if nuid not in owned:
                    await self._stream.purge(subject=chunk_subject(self.bucket, nuid))
                self._leftovers.forget(nuid)
        except HeadraceError as error:
            self._api.session.report(error)

    def _watched(self, message: JetStreamMessage | StreamMessage) -> ObjectInfo:
        if isinstance(message, StreamMessage):
            return decode_info(self.bucket, message.payload, message.sequence, message.timestamp_ns)
        metadata = message.metadata
        return decode_info(self.bucket, message.payload, metadata.stream_seq, metadata.timestamp_ns)

    async def _resolve(self, name: str) -> tuple[ObjectStore, ObjectInfo]:
        """The object a name leads to, and where it is."""
        store, info = self, await self.info(name)
        for _ in range(LINKS_MAX):
            link = info.link
            if link is None:
                return store, info
            if not link.name:
                raise ObjectLinkError(
                    f"{info.name!r} is a link to the whole bucket {link.bucket!r}"
                )
            if link.bucket != store.bucket:
                stream = await Streams(self._api).get(object_stream_name(link.bucket))
                store = ObjectStore(self._api, stream, link.bucket)
            info = await store.info(link.name)
        raise ObjectLinkError(f"the link {name!r} of bucket {self.bucket!r} leads in a circle")

    def _new_id(self) -> str:
        return self._api.session.nuid.next()


def _anything(last: ObjectInfo | None) -> None:
    """A put replaces whatever was there."""


async def _to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """Run a step that must not stop half-way; a cancellation waits for it."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody else will look at it
        raise
