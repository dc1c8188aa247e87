"""Reading an object: chunk after chunk, checked at the end against what was put."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Self

from ...errors import (
    ConfigurationError,
    DisconnectedError,
    NoRespondersError,
    RequestTimeoutError,
)
from ..calling import Progress, TransferProgress
from ..jetstream.stored_message import if_found
from .info import ObjectDamagedError, ObjectInfo, chunk_subject, object_stream_name

if TYPE_CHECKING:
    from ..jetstream.ordered import OrderedConsumption
    from .store import ObjectStore

BUFFER_BYTES: Final = 8 * 1024 * 1024  # on their way or waiting to be taken
UNUSED_S: Final = 60.0  # after so long the server forgets a reading that was given up
SILENCE_S: Final = 5.0  # after so long without a chunk we ask whether there still is one
_UNREACHABLE: Final = (NoRespondersError, RequestTimeoutError, DisconnectedError)


class ObjectReader:
    """The content of one object: ``async with store.open(name) as reader: async for chunk in reader``.

    Chunks are ``bytes`` as they were put, at most about 8 MiB of them are held. After the last one size
    and digest are compared: ObjectDamagedError is raised instead of an end, so content is good once the
    iteration has ended without an error.

    Attributes:
        info: what is being read; a link's target. Known once the block is entered.
    """

    info: ObjectInfo

    def __init__(self, store: ObjectStore, name: str, progress: Progress | None = None) -> None:
        self._store = store
        self._name = name
        self._progress = progress
        self._messages: OrderedConsumption | None = None
        self._sha = hashlib.sha256()
        self._chunks = self._size = 0
        self._rest = b""  # of a chunk, after read(size)
        self._over = False

    def __repr__(self) -> str:
        return f"<ObjectReader of {self._name!r} after {self._size} bytes>"

    async def __aenter__(self) -> Self:
        """Raises ObjectNotFoundError, ObjectLinkError."""
        self._store, self.info = await self._store._resolve(self._name)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End reading, wherever it is."""
        self._over = True
        if self._messages is not None:
            await self._messages.stop()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Raises ObjectDamagedError."""
        if self._rest:
            chunk, self._rest = self._rest, b""
            return chunk
        if self._over:
            raise StopAsyncIteration
        if not hasattr(self, "info"):
            raise ConfigurationError(
                "an object is read inside `async with store.open(name)`, in headrace.sync "
                "`with store.open(name)`"
            )
        if self._chunks >= self.info.chunks:
            self._over = True
            self._verify()
            raise StopAsyncIteration
        chunk = await self._next_chunk()
        self._sha.update(chunk)
        self._chunks += 1
        self._size += len(chunk)
        if self._progress is not None:
            stream = object_stream_name(self.info.bucket)
            self._progress(TransferProgress(stream, self._size, self.info.size))
        return chunk

    async def read(self, size: int = -1) -> bytes:
        """All that is left, or up to ``size`` bytes of it; ``b""`` at the end.

        Raises ObjectDamagedError.
        """
        pieces: list[bytes] = []
        wanted = size
        while wanted:
            chunk = await anext(self, b"")
            if not chunk:
                break
            if 0 <= wanted < len(chunk):
                chunk, self._rest = chunk[:wanted], chunk[wanted:]
            pieces.append(chunk)
            if wanted > 0:
                wanted -= len(chunk)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _next_chunk(self) -> bytes:
        if self.info.chunks == 1:
            return await self._only_chunk()
        if self._messages is None:
            self._messages = await self._begin()
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    message = await anext(self._messages)
                    return message.payload
            except TimeoutError:
                await self._check_that_it_is_there()

    async def _only_chunk(self) -> bytes:
        """Small objects are one request."""
        subject = chunk_subject(self.info.bucket, self.info.nuid)
        chunk = await if_found(self._store._stream.get_last_message(subject))
        if chunk is None:
            raise await self._gone(0)
        return chunk.payload

    async def _begin(self) -> OrderedConsumption:
        info = self.info
        ordered = await self._store._stream.ordered_consumer(
            filter_subject=chunk_subject(info.bucket, info.nuid), inactive_threshold=UNUSED_S
        )
        state = ordered.cached_info or await ordered.info()  # of its creation
        there = state.num_pending + state.delivered.consumer_seq
        if there != info.chunks:
            await ordered.delete()
            raise await self._gone(there)
        largest = info.chunk_size or self._store._api.session.info.max_payload
        return ordered.consume(max_bytes=max(BUFFER_BYTES, 4 * largest))

    async def _check_that_it_is_there(self) -> None:
        """Ask, after a while without a chunk, whether it is late or will never come."""
        info = self.info
        subject = chunk_subject(info.bucket, info.nuid)
        try:
            state = (await self._store._stream.info(subjects=subject)).state
        except _UNREACHABLE:
            return  # nor does the server answer: go on waiting, as every consumer does
        there = state.subjects.get(subject, 0)
        if there != info.chunks:
            raise await self._gone(there)

    async def _gone(self, there: int) -> ObjectDamagedError:
        """Why chunks are missing: by intent, or by accident."""
        info = self.info
        label = f"object {info.name!r} of bucket {info.bucket!r}"
        last = await self._store._descriptions.last(info.name)
        if last is None or last.nuid != info.nuid or last.deleted:
            return ObjectDamagedError(f"{label} was replaced or deleted while it was read")
        return ObjectDamagedError(f"{label} has {there} of its {info.chunks} chunks")

    def _verify(self) -> None:
        info = self.info
        label = f"object {info.name!r} of bucket {info.bucket!r}"
        if self._size != info.size:
            raise ObjectDamagedError(f"{label} has {self._size} of its {info.size} bytes")
        if info.digest and self._sha.digest() != info.digest:
            raise ObjectDamagedError(
                f"{label}: the SHA-256 of what was read is {self._sha.hexdigest()}, "
                f"of what was put {info.digest.hex()}"
            )
