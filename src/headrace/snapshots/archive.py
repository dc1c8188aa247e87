"""The archive that nats-server writes from 2.15 on: entries in a row, messages among them as they are.

Archive:  ``NATSARC1``, then entries
Entry:    name size uvarint · time varint · sequence uvarint · headers size uvarint · payload size uvarint ·
          name · headers · payload

The first entry is ``state.json``; then come ``consumers/<name>``, as many as it says, then messages,
whose name is their subject; an entry of nothing is the end.

``Unpacker`` reads a backup: chunks in, what it says out, whichever of the two containers it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from .consumer_state import read_uvarint, read_varint, uvarint, varint
from .contents import (
    DOCUMENT_BYTES_MAX,
    DOCUMENTS_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    Began,
    ConsumerContent,
    ConsumerDocument,
    ConsumerState,
    Content,
    Ended,
    MessageContent,
    SnapshotFormatError,
    StreamDocument,
    read,
)
from .framing import FrameReader
from .store_files import FilesReader

MAGIC: Final = b"NATSARC1"
END: Final = bytes(5)

_ENTRIES_PER_STEP: Final = 64
_NAME_BYTES_MAX: Final = 1 << 16
_COMPACT_AT: Final = 1 << 20
_STATE: Final = b"state.json"
_CONSUMER: Final = b"consumers/"
_LOOK: Final = len(MAGIC)


def message_entry(
    sequence: int, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int
) -> bytes:
    """A message."""
    return b"".join(
        (
            uvarint(len(subject)),
            varint(timestamp_ns),
            uvarint(sequence),
            uvarint(len(headers)),
            uvarint(len(payload)),
            subject,
            headers,
            payload,
        )
    )


def state_entry(state: Mapping[str, Any], now_ns: int) -> bytes:
    """What the stream holds, with the number of consumers to come as ``consumer_count``."""
    return _document(_STATE, state, now_ns)


def consumer_entry(
    name: str, config: Mapping[str, Any], state: ConsumerState, now_ns: int
) -> bytes:
    """A consumer: its configuration, and where it is."""
    document = {"config": config, "state": state_document(state)}
    return _document(_CONSUMER + name.encode(), document, now_ns)


def state_document(state: ConsumerState) -> dict[str, Any]:
    """A consumer's state as nats-server writes it in JSON."""
    document: dict[str, Any] = {
        "delivered": _pair(state.delivered),
        "ack_floor": _pair(state.ack_floor),
    }
    if state.pending:
        document["pending"] = {
            str(sequence): {"Sequence": place.consumer_seq, "Timestamp": place.delivered_ns}
            for sequence, place in state.pending.items()
        }
    if state.redelivered:
        document["redelivered"] = {str(seq): count for seq, count in state.redelivered.items()}
    return document


def _document(name: bytes, document: Mapping[str, Any], now_ns: int) -> bytes:
    body = json.dumps(document, separators=(",", ":")).encode()
    return message_entry(0, name, b"", body, now_ns)


def _pair(numbers: tuple[int, int]) -> dict[str, int]:
    return {"consumer_seq": numbers[0], "stream_seq": numbers[1]}


class ArchiveReader:
    """Reads an archive from data cut anywhere: ``feed``, then ``step`` until it returns None."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0
        self._magic = False
        self._began: Began | None = None
        self._consumers = 0
        self._documents_left = DOCUMENTS_BYTES_MAX
        self._last = 0
        self.ended = False

    @property
    def at_end(self) -> bool:
        """Whether the archive was whole, and nothing came behind it."""
        return self.ended and self._at == len(self._data)

    def feed(self, data: bytes) -> None:
        self._data += data

    def step(self) -> list[Content] | None:
        """Some of what is there; None when it needs more. Raises SnapshotFormatError."""
        if not self._magic:
            if len(self._data) < len(MAGIC):
                return None
            self._magic = True
            self._at = len(MAGIC)
        found: list[Content] = []
        while not self.ended and len(found) < _ENTRIES_PER_STEP:
            content = self._entry()
            if content is None:
                break
            found.append(content)
        if self._at >= _COMPACT_AT or self._at == len(self._data):
            del self._data[: self._at]
            self._at = 0
        if self.ended and self._at < len(self._data):
            raise SnapshotFormatError("there is something behind the end of the archive")
        return found or None

    def _entry(self) -> Content | None:
        data = self._data
        try:
            name_size, at = read_uvarint(data, self._at)
            stamp_ns, at = read_varint(data, at)
            sequence, at = read_uvarint(data, at)
            headers_size, at = read_uvarint(data, at)
            payload_size, at = read_uvarint(data, at)
        except IndexError:
            return None
        most = MESSAGE_BYTES_MAX if sequence else DOCUMENT_BYTES_MAX
        if name_size > _NAME_BYTES_MAX or headers_size + payload_size > most:
            raise SnapshotFormatError("an entry is larger than any that is read")
        end = at + name_size + headers_size + payload_size
        if end > len(data):
            return None
        with memoryview(data) as view:
            name = bytes(view[at : at + name_size])
            at += name_size
            headers = bytes(view[at : at + headers_size])
            payload = bytes(view[at + headers_size : end])
        self._at = end
        if sequence:
            return self._message(MessageContent(sequence, name, headers, payload, stamp_ns))
        if self._began is None:
            return self._begin(name, payload)
        if self._consumers:
            self._consumers -= 1
            self._documents_left -= len(payload)
            if self._documents_left < 0:
                raise SnapshotFormatError(f"consumers take more than {DOCUMENTS_BYTES_MAX} bytes")
            return _consumer(name, payload)
        if name or stamp_ns or headers or payload:
            raise SnapshotFormatError("an entry is neither a message nor the end")
        self.ended = True
        return Ended(max(self._last, self._began.last_seq), self._began.first_seq)

    def _begin(self, name: bytes, payload: bytes) -> Began:
        if name != _STATE:
            raise SnapshotFormatError("an archive begins with its state")
        state = read(payload, StreamDocument, "the stream's state")
        self._began = Began(state.first_seq, state.last_seq)
        self._consumers = state.consumer_count
        self._last = self._began.first_seq - 1
        return self._began

    def _message(self, message: MessageContent) -> MessageContent:
        if self._began is None or self._consumers:
            raise SnapshotFormatError("a message comes before the state and the consumers")
        if message.sequence <= self._last:
            raise SnapshotFormatError(f"message {message.sequence} comes after {self._last}")
        self._last = message.sequence
        return message


def _consumer(name: bytes, payload: bytes) -> ConsumerContent:
    if not name.startswith(_CONSUMER):
        raise SnapshotFormatError("there are fewer consumers than the state says")
    text = name.removeprefix(_CONSUMER).decode(errors="replace")
    document = read(payload, ConsumerDocument, f"consumer {text!r}")
    return ConsumerContent(text, document.config, document.state.state())


class _Container(Protocol):
    @property
    def at_end(self) -> bool: ...
    def feed(self, data: bytes) -> None: ...
    def step(self) -> list[Content] | None: ...


class Unpacker:
    """Reads one backup, a bounded piece of work at a time.

    ``feed`` chunks as they come, ``step`` until it returns None, and ``finish`` after the last one.
    """

    def __init__(self, stream: str) -> None:
        """``stream`` is the name of the stream in it: its records' checksums depend on that."""
        self._stream = stream
        self._frames = FrameReader()
        self._container: _Container | None = None
        self._head = b""

    @property
    def buffered(self) -> int:
        """How many bytes wait for ``step``."""
        return self._frames.buffered

    def feed(self, chunk: bytes) -> None:
        self._frames.feed(chunk)

    def step(self) -> list[Content] | None:
        """Some of what it says, perhaps nothing yet; None when it needs more.

        Raises SnapshotFormatError.
        """
        container = self._container
        if container is not None and (found := container.step()) is not None:
            return found
        data = self._frames.step()
        if data is None:
            return None
        if container is not None:
            container.feed(data)
        elif data:
            self._begin(data)
        return []

    def finish(self) -> None:
        """There is nothing more: raises SnapshotFormatError if it was not whole."""
        whole = self._container is not None and self._container.at_end
        if not whole or not self._frames.at_end:
            raise SnapshotFormatError("the backup is cut off")

    def _begin(self, data: bytes) -> None:
        self._head += data
        if len(self._head) >= _LOOK:
            archive = self._head.startswith(MAGIC)
            self._container = ArchiveReader() if archive else FilesReader(self._stream)
            self._container.feed(self._head)
            self._head = b""
