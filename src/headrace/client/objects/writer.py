"""Putting an object: chunks of any source, many in flight, nothing left behind when it fails."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from os import SEEK_END
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable
from weakref import WeakKeyDictionary

from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedError,
    HeadraceError,
    RequestTimeoutError,
)
from ..publish.publisher import PublisherSettings, PublishFailure
from ..publish.transports import make_window_publisher
from .info import ObjectDamagedError

if TYPE_CHECKING:
    from ..jetstream.calls import Api
    from ..jetstream.stream import Stream
    from ..net.session import Session
    from ..publish.publisher import Publisher


IN_FLIGHT_BYTES: Final = 8 * 1024 * 1024
IN_FLIGHT_MESSAGES: Final = 4096
READ_BYTES: Final = 1024 * 1024  # from a file, at a time


@runtime_checkable
class ReadableFile(Protocol):
    """A file opened for reading bytes, or anything like it."""

    def read(self, size: int, /) -> bytes: ...


Bytes: TypeAlias = bytes | bytearray | memoryview
Content: TypeAlias = Bytes | ReadableFile | AsyncIterable[Bytes] | Iterable[Bytes]
"""What may be put: bytes, a binary file, or pieces of bytes, asynchronous or not."""


@runtime_checkable
class _Seekable(Protocol):
    def seekable(self) -> bool: ...

    def tell(self) -> int: ...

    def seek(self, offset: int, whence: int = 0, /) -> object: ...


class Source:
    """What is put, and whether it can be read once more from where it began."""

    def __init__(self, content: Content) -> None:
        self._content: object = content
        self._start: int | None = None
        if isinstance(self._content, _Seekable) and self._content.seekable():
            self._start = self._content.tell()

    def size(self) -> int:
        """How many bytes there are; 0 where nobody knows. A file is asked where it ends."""
        if self._start is not None and isinstance(self._content, _Seekable):
            self._content.seek(0, SEEK_END)
            end = self._content.tell()
            self._content.seek(self._start)
            return end - self._start
        if isinstance(self._content, bytes | bytearray | memoryview):
            return memoryview(self._content).nbytes
        return 0

    def rewind(self) -> bool:
        """Go back to the beginning; False if that cannot be."""
        if self._start is not None and isinstance(self._content, _Seekable):
            self._content.seek(self._start)
            return True
        return isinstance(self._content, bytes | bytearray | memoryview)


class Written:
    """What was written so far; ``digest`` is that of it all."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.size = self.chunks = 0


async def write_chunks(
    api: Api,
    stream: Stream,
    subject: str,
    content: Content,
    chunk_size: int,
    leftovers: Leftovers,
    told: Callable[[int], object] | None = None,
) -> Written:
    """Publish ``content`` on ``subject``. If anything fails, what was published is purged again.

    A chunk must not be there twice nor out of order. So nothing is sent twice, and a lost connection
    fails the put. In a cluster chunks have ids and wait for a leader; if there was any waiting, they are
    read once more. Raises ObjectDamagedError if they are not what was written. ``told`` is called with how
    many bytes have gone.
    """
    written = Written()
    await wait_for_link(api)
    session = api.session
    in_cluster = bool(session.info.cluster)
    failures: list[PublishFailure] = []

    def failed(failure: PublishFailure) -> None:
        failures.append(failure)
        if session.link is None:
            session.loop.call_soon(publisher.close)  # what is held back must not be sent any more

    def check_link() -> None:
        """A lost connection fails the put, but in a cluster: it need not wait for the next one."""
        if session.link is None and not in_cluster:
            session.raise_if_unusable()
            raise DisconnectedError(f"the object was not stored: {session.where}")

    settings = PublisherSettings(
        window=IN_FLIGHT_MESSAGES,
        window_bytes=IN_FLIGHT_BYTES,
        delivery_timeout=api.delivery_timeout,
        retries=3 if in_cluster else 0,
        deduplicate=in_cluster,
        on_failure=failed,
    )
    publisher = make_window_publisher(api, settings)
    async with publisher:
        try:
            async with aclosing(_chunks(content, chunk_size)) as chunks:
                async for chunk in chunks:
                    if failures:
                        break
                    check_link()
                    await publisher.send(subject, chunk)
                    written.sha.update(chunk)
                    written.size += len(chunk)
                    written.chunks += 1
                    if told is not None:
                        told(written.size)
            if not failures:
                check_link()
            await _flush(publisher)
            if failures:
                raise failures[0].error
            if publisher._recovery.count:
                await _compare(stream, subject, written)
        except BaseException as error:
            cause = failures[0].error if failures and isinstance(error, HeadraceError) else error
            await _wait_for_answers(api, publisher)
            await clean_up(stream, subject, cause, leftovers)
            raise cause from None
    return written


async def _compare(stream: Stream, subject: str, written: Written) -> None:
    """Read the chunks, and compare them with what was written."""
    sha, count = hashlib.sha256(), 0
    ordered = await stream.ordered_consumer(filter_subject=subject)
    try:
        async with ordered.consume(max_bytes=IN_FLIGHT_BYTES) as messages:
            while count < written.chunks:
                message = await anext(messages)
                sha.update(message.payload)
                count += 1
    finally:
        await ordered.delete()
    if sha.digest() != written.sha.digest():
        raise ObjectDamagedError(
            f"the leader of {stream.name!r} changed, and the content arrived in another order"
        )


async def _flush(publisher: Publisher) -> None:
    await publisher.flush()


async def wait_for_link(api: Api) -> None:
    """While there is no connection, wait for one as long as a call does. Raises as a call."""
    session = api.session
    session.check_linked()
    if session.link is not None:
        return
    try:
        async with asyncio.timeout(api.timeout):
            await session.flush()
    except TimeoutError:
        raise RequestTimeoutError(
            f"no connection within {api.timeout} s: it was not sent; {session.where}"
        ) from None


async def _wait_for_answers(api: Api, publisher: Publisher) -> None:
    """Wait for the answers under way: a purge that overtook a chunk would leave it behind."""
    if api.session.link is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(api.timeout):
                await publisher.flush()
    publisher.close()


async def clean_up(
    stream: Stream, subject: str, cause: BaseException, leftovers: Leftovers
) -> None:
    """Remove chunks nobody will read. Where that fails, too, the cause gets a note of it, and the next put
    of the bucket over this connection removes them."""
    left = f"what was sent of it may be left in {stream.name!r}, on {subject!r}"
    if isinstance(cause, ConnectionClosedError):
        cause.add_note(f"{left}, until remove_leftovers() is called")
        return
    nuid = subject.rpartition(".")[2]
    leftovers.note(nuid)
    if isinstance(cause, asyncio.CancelledError) and stream._api.session.link is None:
        return  # there is nothing to wait for
    try:
        await stream.purge(subject=subject)
    except HeadraceError as error:
        cause.add_note(f"{left}, until the next put of this connection: {error}")
    else:
        leftovers.forget(nuid)


# The source


async def _chunks(content: Content, size: int) -> AsyncGenerator[bytes]:
    """The bytes in pieces of ``size``, the last one shorter."""
    held = bytearray()
    async with aclosing(_pieces(content)) as pieces:
        async for piece in pieces:
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise ConfigurationError(
                    f"an object's content is bytes, and {type(piece).__name__} came; "
                    "open files in binary mode, encode text"
                )
            view = memoryview(piece).cast("B")
            start = 0
            if held:
                start = min(size - len(held), len(view))
                held += view[:start]
                if len(held) < size:
                    continue
                yield bytes(held)
                held.clear()
            end = start + (len(view) - start) // size * size
            for at in range(start, end, size):
                yield bytes(view[at : at + size])
            held += view[end:]
    if held:
        yield bytes(held)


async def _pieces(content: Content) -> AsyncGenerator[Any]:
    """Pieces of the content; files and generators are read on another thread, as they may block."""
    piece: Any
    if isinstance(content, bytes | bytearray | memoryview):
        yield content
    elif isinstance(content, ReadableFile):
        while piece := await asyncio.to_thread(content.read, READ_BYTES):
            yield piece
    elif isinstance(content, AsyncIterable):
        async for piece in content:
            yield piece
    elif isinstance(content, Iterable):
        iterator: Iterator[Any] = iter(content)
        while (piece := await asyncio.to_thread(next, iterator, None)) is not None:
            yield piece
    else:
        raise ConfigurationError(
            f"an object's content cannot be {type(content).__name__}; accepted are bytes, a file "
            "opened in binary mode, and (asynchronous) iterables of bytes"
        )


SETTLED_S: Final = 60.0  # a description that a server has not stored by then, it will not store
LEFTOVERS_MAX: Final = 1000  # more are forgotten here; ``ObjectStore.remove_leftovers`` finds them


class Leftovers:
    """Of one bucket."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[
            str, tuple[str, float]
        ] = {}  # nuid → the name it may yet have, since when

    def __len__(self) -> int:
        return len(self._found)

    def note(self, nuid: str, name: str = "") -> None:
        """This content may belong to no object. ``name``: a description of this name may be on its way."""
        self._found[nuid] = (name, time.monotonic())
        if len(self._found) > LEFTOVERS_MAX:
            del self._found[next(iter(self._found))]

    def forget(self, nuid: str) -> None:
        """It is removed, or somebody's."""
        self._found.pop(nuid, None)

    def due(self, name: str) -> list[str]:
        """What may be removed unless an object has it, now that one of this name was stored."""
        limit = time.monotonic() - SETTLED_S
        return [
            nuid
            for nuid, (coming, since) in self._found.items()
            if coming in ("", name) or since <= limit
        ]


_of: WeakKeyDictionary[Session, dict[str, Leftovers]] = WeakKeyDictionary()


def leftovers_of(session: Session, bucket: str) -> Leftovers:
    """What this connection knows of a bucket."""
    return _of.setdefault(session, {}).setdefault(bucket, Leftovers())
