"""Backups of streams in directories, as the ``nats`` tool makes and reads them.

A directory has ``backup.json``, what the server said of the stream, and ``stream.tar.s2``, the backup
itself, which is passed on as it is. A backup that was cut off never stands under these names.

Of a stream that copies others ``backup.json`` has ``copied``, too: of each of its sources the last message
that is in the backup, or was and is handled. A server that restores the stream does not know that, and would
copy from the beginning: so the restored stream is configured to go on behind it, if the source is the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Final

from ...api.base import Document, DocumentError, encode, from_wire, read_json, to_wire
from ...api.envelope import decode_response
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...api.snapshots import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    RestoreResponse,
    SnapshotRequest,
    SnapshotResponse,
)
from ...api.streams import StreamConfig, StreamInfo, StreamSource, StreamSourceInfo, StreamStateInfo
from ...errors import ConfigurationError, HeadraceError, JetStreamApiError, RequestTimeoutError
from ...files import opened, sync, write_whole
from ...identity import MessageIdentity, Sameness, compare
from ..calling import Progress, TransferProgress
from ..subscription import Subscription
from .calls import Api, check_name
from .stored_message import StreamMessage, from_document

DATA_FILE: Final = "stream.tar.s2"
ABOUT_FILE: Final = "backup.json"

_SILENCE_S: Final = 15.0  # the server itself gives up after five
_UNANSWERED_MAX: Final = 8
_SOURCE: Final = "Nats-Stream-Source"
_ABOUT_BYTES_MAX: Final = 8 << 20


class BackupError(HeadraceError):
    """A backup did not come to its end; what there is of it was removed."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup in a directory."""

    directory: Path
    config: StreamConfig
    state: StreamStateInfo
    nbytes: int
    """The size of the backup itself."""
    about: dict[str, Any]
    """The document ``backup.json``, with fields this library does not know, too."""


def read_backup(directory: str | os.PathLike[str]) -> Backup:
    """What a backup in a directory is of. Raises ConfigurationError if there is none."""
    place = Path(directory)
    try:
        about = read_json(_whole(place / ABOUT_FILE))
        nbytes = _regular((place / DATA_FILE).stat(), DATA_FILE).st_size
        config = from_wire(about["config"], StreamConfig)
        state = from_wire(about["state"], StreamStateInfo)
    except OSError as error:
        raise ConfigurationError(f"no backup in {place}: {error}") from error
    except (DocumentError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{place / ABOUT_FILE} is not that of a backup: {error}"
        ) from error
    return Backup(place, config, state, nbytes, about)


def _whole(path: Path) -> bytes:
    """A document of a backup. Raises OSError, DocumentError if it is none."""
    # Whoever wrote the backup may have put a pipe here, on which an ordinary open waits for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        _regular(os.fstat(handle), path.name)
        found = file.read(_ABOUT_BYTES_MAX + 1)
    if len(found) > _ABOUT_BYTES_MAX:
        raise DocumentError(f"it is larger than {_ABOUT_BYTES_MAX} bytes")
    return found


def _regular(found: os.stat_result, name: str) -> os.stat_result:
    if not stat.S_ISREG(found.st_mode):
        raise DocumentError(f"{name} is no regular file")
    return found


async def backup_stream(
    api: Api,
    name: str,
    directory: str | os.PathLike[str],
    *,
    consumers: bool,
    check: bool,
    chunk_bytes: int,
    progress: Progress | None,
) -> Backup:
    """See ``Stream.backup``."""
    if not CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX:
        raise ConfigurationError(
            f"chunk_bytes={chunk_bytes}: accepted are {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}"
        )
    place = Path(directory)
    await asyncio.to_thread(place.mkdir, parents=True, exist_ok=True)
    inbox = api.session.new_inbox()
    request = SnapshotRequest(
        deliver_subject=inbox, no_consumers=not consumers, jsck=check, chunk_size=chunk_bytes
    )
    part = place / f"{DATA_FILE}.part"
    async with Subscription(api.session, inbox, "") as chunks:
        tokens = ("STREAM", "SNAPSHOT", check_name("stream", name))
        before = await api.call(StreamInfo, ("STREAM", "INFO", name), repeatable=True)
        about = await _ask(api, tokens, request, SnapshotResponse)
        expected = int(about["state"].get("bytes", 0))
        part.unlink(missing_ok=True)  # of a backup that was interrupted
        file = await asyncio.to_thread(opened, part, "xb")
        try:
            with file:
                await _write(file, chunks, name, expected, progress)
            if before.config.sources:
                about["copied"] = await _copied(api, before, int(about["state"].get("last_seq", 0)))
            await asyncio.to_thread(_settle, place, part, about)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    return await asyncio.to_thread(read_backup, place)


async def _write(
    file: IO[bytes], chunks: Subscription, name: str, expected: int, progress: Progress | None
) -> None:
    """Write what comes, and answer each chunk when it is written: the server sends no faster."""
    nbytes, over = 0, False
    while not over:
        try:
            async with asyncio.timeout(_SILENCE_S):
                batch = await chunks.next_batch(16)
        except TimeoutError:
            raise RequestTimeoutError(f"no part of the backup came within {_SILENCE_S} s") from None
        if not batch:
            raise BackupError("the connection was closed")
        await asyncio.to_thread(file.writelines, [message.payload for message in batch])
        for message in batch:
            nbytes += len(message.payload)
            if message.reply:
                await message.respond(b"")
            over = over or not message.payload
        if over and batch[-1].headers.status not in (None, 204):
            status = f"{batch[-1].headers.status} {batch[-1].headers.description}"
            raise BackupError(f"the server ended it: {status}")
        if progress is not None:
            progress(TransferProgress(name, nbytes, expected))
    await asyncio.to_thread(sync, file)


def _settle(place: Path, part: Path, about: dict[str, Any]) -> None:
    """Give a whole backup its names."""
    kept = {key: about[key] for key in ("config", "state", "copied") if key in about}
    part.replace(place / DATA_FILE)
    write_whole(place / ABOUT_FILE, json.dumps(kept, indent=2))


async def restore_stream(
    api: Api,
    directory: str | os.PathLike[str],
    config: StreamConfig | None,
    timeout: float,
    progress: Progress | None,
) -> StreamInfo:
    """See ``JetStream.restore_stream``."""
    backup = await asyncio.to_thread(read_backup, directory)
    wanted = backup.about["config"] if config is None else to_wire(config)
    name = check_name("stream", str(wanted.get("name") or backup.config.name))
    await _go_on_behind(api, wanted.get("sources") or [], backup)
    body = json.dumps({"config": wanted, "state": backup.about["state"]}).encode()
    found = await _ask(api, ("STREAM", "RESTORE", name), body, RestoreResponse)
    sending = _Sending(api, str(found["deliver_subject"]), name, backup.nbytes, progress)
    chunk_bytes = min(CHUNK_BYTES_MAX // 8, api.session.info.max_payload)
    async for chunk in _chunks(backup.directory / DATA_FILE, chunk_bytes):
        await sending.send(chunk)
    answer = await sending.finish(timeout)
    return decode_response(answer, StreamInfo)


# Where a copy goes on


async def _copied(api: Api, before: StreamInfo, last_seq: int) -> list[tuple[str, int, int] | None]:
    """The last message of each source that a backup has or had, whose last sequence is ``last_seq``; None
    where that cannot be told. What came between a look and the backup is in the copies' own headers."""
    if before.state.last_seq == last_seq:
        reached = {_which(each): each.seq for each in before.sources}
        numbers = [reached.get(_which(each), 0) for each in before.config.sources]
    else:
        last = await _message(api, before.config.name, last_seq)
        origins = [] if last is None else (last.headers.get(_SOURCE) or "").split(" ")
        is_told = len(origins) > 1 and origins[1].isdigit() and len(before.config.sources) == 1
        numbers = [int(origins[1])] if is_told else []
    found: list[tuple[str, int, int] | None] = []
    for source, number in zip_longest(before.config.sources, numbers, fillvalue=0):
        assert isinstance(source, StreamSource)
        if not number or source.external is not None:
            found.append(None)
            continue
        message = await _message(api, source.name, number)
        found.append((source.name, number, 0 if message is None else message.timestamp_ns))
    return found


def _which(source: StreamSource | StreamSourceInfo) -> tuple[object, ...]:
    return (source.name, source.filter_subject, source.subject_transforms)


async def _message(
    api: Api, stream: str, sequence: int, *, next_one: bool = False
) -> StreamMessage | None:
    """A message, or the ``next_one`` that is there; None if there is none, or no such stream."""
    request = GetMessageRequest(seq=sequence, next_by_subj=">" if next_one else "")
    try:
        answer = await api.call(
            GetMessageResponse, ("STREAM", "MSG", "GET", stream), request, repeatable=True
        )
    except JetStreamApiError as error:
        if error.code != 404:
            raise
        return None
    return from_document(answer.message)


async def _go_on_behind(api: Api, sources: list[dict[str, Any]], backup: Backup) -> None:
    """Have each of the ``sources`` begin behind what the backup has of it, where it still is that stream."""
    copied = backup.about.get("copied") or []
    for source, its, known in zip(sources, backup.config.sources, copied, strict=False):
        if known is None or source.get("name") != its.name:
            continue
        remembered = MessageIdentity(*known)
        if await _sameness(api, remembered) is not Sameness.OTHER:
            source["opt_start_seq"] = remembered.sequence + 1
            source.pop("opt_start_time", None)


async def _sameness(api: Api, remembered: MessageIdentity) -> Sameness:
    """Whether a source is what it was. One that is not there may be restored later: GONE."""
    try:
        info = await api.call(StreamInfo, ("STREAM", "INFO", remembered.stream), repeatable=True)
    except JetStreamApiError as error:
        if error.code != 404:
            raise
        return Sameness.GONE
    there = await _message(api, remembered.stream, remembered.sequence, next_one=True)
    found = None
    if there is not None:
        found = MessageIdentity(remembered.stream, there.sequence, there.timestamp_ns)
    last = MessageIdentity(remembered.stream, info.state.last_seq, 0)
    return compare(remembered, found, last)


async def _chunks(path: Path, size: int) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    with file:
        while chunk := await asyncio.to_thread(file.read, size):
            yield chunk


class _Sending:
    """Sends chunks, a few of them unanswered at a time."""

    def __init__(
        self, api: Api, subject: str, stream: str, total: int, progress: Progress | None
    ) -> None:
        self._api = api
        self._subject = subject
        self._stream = stream
        self._total = total
        self._progress = progress
        self._sent = 0
        self._unanswered: deque[tuple[asyncio.Task[bytes], int]] = deque()

    async def send(self, chunk: bytes) -> None:
        """Send one, when one before it was taken. Raises JetStreamApiError."""
        while len(self._unanswered) >= _UNANSWERED_MAX:
            await self._take()
        asking = asyncio.ensure_future(self._ask(chunk, self._api.timeout + _SILENCE_S))
        self._unanswered.append((asking, len(chunk)))

    async def finish(self, timeout: float) -> bytes:
        """There are no more: the server's answer when the stream is there."""
        while self._unanswered:
            await self._take()
        return await self._ask(b"", timeout)

    async def _ask(self, chunk: bytes, timeout: float) -> bytes:
        frame = await self._api.session.requests.ask(self._subject, b"", chunk, timeout)
        return frame[5] if isinstance(frame[5], bytes) else bytes(frame[5])

    async def _take(self) -> None:
        asking, size = self._unanswered.popleft()
        try:
            answer = await asking
            if answer:
                decode_response(answer, StreamInfo)  # a refusal
        except BaseException:
            for other, _ in self._unanswered:
                other.cancel()
            await asyncio.gather(*(other for other, _ in self._unanswered), return_exceptions=True)
            self._unanswered.clear()
            raise
        self._sent += size
        if self._progress is not None:
            self._progress(TransferProgress(self._stream, self._sent, self._total))


async def _ask(
    api: Api, tokens: tuple[str, ...], request: Document | bytes, kind: type[Document]
) -> dict[str, Any]:
    """The answer as it came, checked. Raises JetStreamApiError and as ``Api.call``."""
    body = request if isinstance(request, bytes) else encode(request)
    frame = await api.session.requests.ask(api.subject(*tokens), b"", body, api.timeout)
    decode_response(frame[5], kind)
    found: dict[str, Any] = read_json(frame[5])
    return found
