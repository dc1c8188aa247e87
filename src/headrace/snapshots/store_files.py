"""A tar of the files of nats-server's store, as backups of servers before 2.15 are.

``meta.inf`` is the stream's configuration, ``msgs/<number>.blk`` are its messages, ``obs/<consumer>/`` has a
configuration and a state, ``o.dat``. A ``meta.sum`` beside each configuration is its hash.
``msgs/index.db`` repeats what the other files say. Messages come first, so what was deleted of them is
known at the end.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from typing import Any, Final

from .consumer_state import decode_state
from .contents import (
    DOCUMENT_BYTES_MAX,
    DOCUMENTS_BYTES_MAX,
    Began,
    ConsumerContent,
    ConsumerState,
    Content,
    Ended,
    MessageContent,
    SnapshotFormatError,
    created,
    read,
)
from .records import DELETED_MAX, BlockReader, HighwayHash
from .tar import BLOCK, EXTENDED, FILE, decimal, padding, read_extended, read_header

_PASSED_MAX: Final = 1 << 17  # records of what is known: as many as are there twice after a crash
_BEHIND_MAX: Final = 1 << 20  # bytes of padding behind the end
_EXTENDED_BYTES_MAX: Final = 64 << 10
_WORK: Final = 150  # packets of hashing in one step: about a millisecond


class FilesReader:
    """Reads such a tar from data cut anywhere: ``feed``, then ``step`` until it returns None."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._data = bytearray()
        self._name = ""
        self._left = -1  # bytes of the file that have not come; −1: a header is next
        self._skip = 0
        self._extended: dict[str, str] = {}
        self._body = bytearray()
        self._block: BlockReader | None = None
        self._documents: dict[str, bytes] = {}
        self._documents_left = DOCUMENTS_BYTES_MAX
        self._checked: dict[str, dict[str, Any]] = {}
        self._began = False
        self._deleted = array("Q")
        self._last = 0
        self._passed = 0
        self._block_number = 0
        self._known: set[str] = set()
        self._behind = 0
        self._ended = False

    @property
    def at_end(self) -> bool:
        """Whether the tar was whole."""
        return self._ended

    def feed(self, data: bytes) -> None:
        self._data += data

    def step(self) -> list[Content] | None:
        """Some of what is there; None when it needs more. Raises SnapshotFormatError."""
        if self._ended:
            self._take_padding_behind()
            return None
        if self._block is not None:
            messages, hungry = self._block.read(_WORK)
            if messages or not hungry:
                return [*self._in_order(messages)]
        if self._left >= 0:
            return self._take_body()
        if self._skip:
            return self._take_padding()
        return self._take_header()

    def _in_order(self, messages: list[MessageContent]) -> list[MessageContent]:
        """Those that are not there twice, as after a crash of the server that wrote them."""
        found = []
        for message in messages:
            if message.sequence > self._last:
                self._last = message.sequence
                found.append(message)
        self._passed += len(messages) - len(found)
        if self._passed + (self._block.passed if self._block is not None else 0) > _PASSED_MAX:
            raise SnapshotFormatError(f"more than {_PASSED_MAX} records repeat what is known")
        return found

    # -- the tar

    def _take_padding(self) -> list[Content] | None:
        taken = min(self._skip, len(self._data))
        if not taken:
            return None
        del self._data[:taken]
        self._skip -= taken
        return []

    def _take_padding_behind(self) -> None:
        """The end may be padded, as tapes are."""
        self._behind += len(self._data)
        if any(self._data) or self._behind > _BEHIND_MAX:
            raise SnapshotFormatError("there is something behind the end of the tar")
        self._data.clear()

    def _take_header(self) -> list[Content] | None:
        if len(self._data) < BLOCK:
            return None
        block = bytes(self._data[:BLOCK])
        del self._data[:BLOCK]
        if not any(block):
            return self._end()
        name, size, kind = read_header(block)
        extended, self._extended = self._extended, {}
        if kind == EXTENDED:
            if self._name == EXTENDED:
                raise SnapshotFormatError("an extended tar header describes another one")
            self._name = EXTENDED
            if size > _EXTENDED_BYTES_MAX:
                raise SnapshotFormatError(f"an extended tar header of {size} bytes")
        elif kind == FILE:
            self._name = extended.get("path", name)
            size = decimal(extended["size"].encode(), "a size") if "size" in extended else size
        else:
            raise SnapshotFormatError(f"{name} in the tar is no regular file")
        self._left, self._skip = size, padding(size)
        self._body.clear()
        return self._begin_file(size)

    def _begin_file(self, size: int) -> list[Content]:
        folder, _, file = self._name.rpartition("/")
        number, _, kind = file.partition(".")
        if folder == "msgs" and kind == "blk":
            if not self._began:
                raise SnapshotFormatError("messages come before the stream's configuration")
            self._begin_block(decimal(number.encode(), "a file's number"))
        elif size > DOCUMENT_BYTES_MAX:
            raise SnapshotFormatError(f"{self._name} has {size} bytes")
        return []

    def _begin_block(self, number: int) -> None:
        if number <= self._block_number:
            raise SnapshotFormatError(
                f"message file {number} comes after message file {self._block_number}"
            )
        self._block_number = number
        self._block = BlockReader(self._stream, number)

    def _take_body(self) -> list[Content] | None:
        if self._left and not self._data:
            return None
        with memoryview(self._data) as view:
            part = bytes(view[: self._left])
        del self._data[: len(part)]
        self._left -= len(part)
        if self._block is not None:
            self._block.feed(part)
            messages, hungry = self._block.read(_WORK)
            found: list[Content] = [*self._in_order(messages)]
            if self._left or not hungry:
                return found
            self._end_block(self._block)
            return found
        self._body += part
        if self._left:
            return []
        self._left = -1
        return self._document(self._name, bytes(self._body))

    def _end_block(self, block: BlockReader) -> None:
        if not block.at_end:
            raise SnapshotFormatError(f"{self._name} ends within a record")
        self._last = max(self._last, block.last_seq, max(block.deleted, default=0))
        self._passed += block.passed
        self._deleted.extend(block.deleted)
        if len(self._deleted) > DELETED_MAX:
            raise SnapshotFormatError(f"more than {DELETED_MAX} messages are deleted in it")
        self._block = None
        self._left = -1

    # -- the files

    def _document(self, name: str, body: bytes) -> list[Content]:
        if name == EXTENDED:
            self._extended = read_extended(body)
            return []
        if name in self._known:
            raise SnapshotFormatError(f"{name} is there twice")
        self._known.add(name)
        folder, _, file = name.rpartition("/")
        if name == "errors.txt":
            raise SnapshotFormatError(
                f"the server could not finish it: {body.decode(errors='replace')}"
            )
        if name == "meta.inf" or (folder.startswith("obs/") and file in ("meta.inf", "o.dat")):
            self._documents_left -= len(name) + len(body)
            if self._documents_left < 0:
                raise SnapshotFormatError(f"documents take more than {DOCUMENTS_BYTES_MAX} bytes")
            self._documents[name] = body
        elif name == "meta.sum":
            return [self._begin(body)]
        elif folder.startswith("obs/") and file == "meta.sum":
            self._check_sum(folder + "/meta.inf", body, f"{self._stream}/{folder[4:]}")
        elif name not in ("msgs/index.db", "msgs/thw.db", "msgs/sched.db", "sources.db"):
            raise SnapshotFormatError(f"{name} is no file of a backup")
        return []

    def _begin(self, digest: bytes) -> Began:
        meta = self._check_sum("meta.inf", digest, self._stream)
        if meta.get("name") != self._stream:
            raise SnapshotFormatError(f"it is of stream {meta.get('name')!r}, not {self._stream!r}")
        self._began = True
        return Began(created=created(meta, "meta.inf"))

    def _check_sum(self, name: str, digest: bytes, key: str) -> dict[str, Any]:
        body = self._documents.get(name)
        if body is None:
            raise SnapshotFormatError(f"a checksum comes before {name}")
        hashes = HighwayHash(sha256(key.encode()).digest())
        if hashes.digest(body).hex().encode() != digest.strip():
            raise SnapshotFormatError(f"the checksum of {name} is wrong")
        self._checked[name] = read(body, dict[str, Any], name)
        return self._checked[name]

    def _end(self) -> list[Content]:
        if not self._began:
            raise SnapshotFormatError("there is no configuration of a stream")
        consumers: list[Content] = [
            self._consumer(name.split("/")[1])
            for name in self._documents
            if name.startswith("obs/") and name.endswith("/meta.inf")
        ]
        self._ended = True
        return [*consumers, Ended(self._last, 0, self._deleted)]

    def _consumer(self, name: str) -> ConsumerContent:
        meta = f"obs/{name}/meta.inf"
        if meta not in self._checked:
            raise SnapshotFormatError(f"{meta} has no checksum")
        config = self._checked[meta]
        made = created(config, meta)
        own_name = config.pop("Name", None)
        if own_name and own_name != name:
            raise SnapshotFormatError(f"{meta} is of consumer {own_name!r}")
        data = self._documents.get(f"obs/{name}/o.dat")
        state = decode_state(data) if data else ConsumerState()
        return ConsumerContent(name, config, state, made)
