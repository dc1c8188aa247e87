"""Writing a damaged stream anew, of the backup of what can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...broker.core.jetstream.headers import expires_at
from ...broker.core.jetstream.stream.publishes import leave_gap
from ...broker.core.ports import StreamStore
from ...broker.store import FileStorage
from ...snapshots.archive import Unpacker
from ...snapshots.contents import Ended, MessageContent
from ..shared.errors import Failure

_FLUSH_BYTES: Final = 16 << 20
_CHUNK: Final = 1 << 20


def rewrite(storage: FileStorage, full_name: str, backup: Path) -> None:
    """Replace the stream's files by what its backup holds. Raises Failure if the disk refuses.

    The stream's configuration and consumers, which the journal has, stay as they are.
    """
    storage.delete_stream(full_name)
    store = storage.create_stream(full_name)
    unpacker = Unpacker(full_name.rpartition("/")[2])
    with (backup / "stream.tar.s2").open("rb") as file:
        while chunk := file.read(_CHUNK):
            unpacker.feed(chunk)
            while (found := unpacker.step()) is not None:
                for content in found:
                    if isinstance(content, MessageContent):
                        _append(store, content)
                    elif isinstance(content, Ended) and content.last_seq > store.last_seq:
                        store.skip_to(content.last_seq + 1)
            if storage.pending_bytes > _FLUSH_BYTES:
                _flush(storage, backup)
    unpacker.finish()
    _flush(storage, backup)


def _append(store: StreamStore, message: MessageContent) -> None:
    sequence, subject, headers, payload, stamp_ns = message
    if sequence > store.last_seq + 1:
        leave_gap(store, sequence, stamp_ns)
    expires_ns = expires_at(headers, stamp_ns) if headers else 0
    if expires_ns:
        store.append_expiring(subject, headers, payload, stamp_ns, expires_ns)
    else:
        store.append(subject, headers, payload, stamp_ns)


def _flush(storage: FileStorage, backup: Path) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    if outcome != [None]:
        raise Failure(
            f"the stream could not be written anew: {outcome[0]}",
            f"headrace stream restore {backup}    brings it back, once a broker runs",
        )
