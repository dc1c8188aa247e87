"""Atomic batches: messages that are published one by one and stored together, all or none.

What has come waits in memory, checked only for its place in the batch. The commit checks every message as
if those before it were stored, appends them in one go, and is acknowledged when they are on disk; a restart
finds all of them or none. An idle batch is abandoned, and so is one with a gap; advisories say so.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.errors import Errors
from .....errors import StoreError
from .....limits import (
    ATOMIC_BATCH_IDLE_S,
    ATOMIC_BATCH_MESSAGES_MAX,
    ATOMIC_BATCHES_BYTES_MAX,
    ATOMIC_BATCHES_MAX,
    ATOMIC_BATCHES_PER_STREAM_MAX,
)
from ...timers import Timer
from ..config.options import Refused
from ..config.sizes import read_number
from ..context import Context
from ..headers import MARK, header_value, read_headers, with_headers, without_header
from ..ports import PublishTarget
from ..tick.flush_barrier import store_refusal
from .admission import Checks, Overlay

BATCH_MARK: Final = b"\r\nNats-Batch-Id:"
"""In the headers of every message of a batch."""
_ID: Final = b"Nats-Batch-Id"
_SEQUENCE: Final = b"Nats-Batch-Sequence"
_COMMIT: Final = b"Nats-Batch-Commit"
_LEVEL: Final = b"Nats-Required-Api-Level"
_LEAST: Final = 2  # headers of ours in every message: with no more, there is nothing to read
_ID_BYTES_MAX: Final = 64
_NS: Final = 1_000_000_000


class _Batch(msgspec.Struct, eq=False):
    """An open batch: subject, headers and payload of each message, and when the last one came."""

    touched_ns: int
    messages: list[tuple[bytes, bytes, bytes]] = msgspec.field(default_factory=list)
    sequence: int = 0
    nbytes: int = 0
    timer: Timer | None = None


class AtomicBatches:
    """The open batches of one stream."""

    def __init__(self, context: Context, stream: PublishTarget, checks: Checks) -> None:
        self._context = context
        self._stream = stream
        self._checks = checks
        self._open: dict[bytes, _Batch] = {}

    def close(self) -> None:
        """Forget every open batch, untold: the stream goes, or takes no batches any more."""
        for batch_id in list(self._open):
            self._drop(batch_id)

    def ingest(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """One message of a batch: keep it, or commit, or answer why not."""
        try:
            self._add(subject, reply, headers, payload)
        except Refused as refusal:
            self._stream.refuse(reply, refusal.error)
        except StoreError as error:
            self._stream.refuse(reply, store_refusal(error))

    def _add(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self._checks.check_size(headers, payload)
        if not self._stream.config.allow_atomic:
            raise Refused(Errors.BATCH_DISABLED)
        batch_id = header_value(headers, _ID)
        if len(batch_id) > _ID_BYTES_MAX:
            raise Refused(Errors.BATCH_INVALID_ID)
        sequence = read_number(header_value(headers, _SEQUENCE))
        if sequence is None:
            raise Refused(Errors.BATCH_MISSING_SEQUENCE)
        found = {} if headers.count(MARK) == _LEAST else read_headers(headers)
        commit = found.get(_COMMIT, b"")
        ends = commit == b"eob"  # the end of the batch, and no message of it
        batch = self._open.get(batch_id) or self._begin(batch_id, sequence - ends, sequence)
        if commit and not ends and commit != b"1":
            self._drop(batch_id)
            raise Refused(Errors.BATCH_INVALID_COMMIT)
        if _LEVEL in found:
            headers = self._without_level(batch_id, found[_LEVEL], headers)
        batch.touched_ns = self._context.clock.monotonic_ns()
        batch.sequence += 1
        if sequence != batch.sequence or (sequence == 1 and ends):
            self._abandon(batch_id, "incomplete")
            raise Refused(Errors.BATCH_INCOMPLETE)
        if sequence - ends > (most := self._messages_max()):
            self._abandon(batch_id, "large")
            raise Refused(Errors.BATCH_TOO_LARGE, size=most)
        if not ends:
            self._keep(batch_id, batch, (subject, headers, payload))
        if commit:
            self._commit(batch_id, reply, ends=ends)
        elif reply:
            self._context.bus.publish(reply, b"", b"", b"")

    def _begin(self, batch_id: bytes, size: int, sequence: int) -> _Batch:
        if sequence != 1:
            if size > (most := self._messages_max()):
                raise Refused(Errors.BATCH_TOO_LARGE, size=most)
            raise Refused(Errors.BATCH_INCOMPLETE)
        room, limits = self._context.batch_room, self._context.options.assets
        if len(self._open) >= (
            limits.batches_per_stream or ATOMIC_BATCHES_PER_STREAM_MAX
        ) or room.batches >= (limits.batches or ATOMIC_BATCHES_MAX):
            raise Refused(Errors.BATCH_TOO_MANY)
        room.batches += 1
        now_ns = self._context.clock.monotonic_ns()
        batch = self._open[batch_id] = _Batch(now_ns)
        self._arm(batch_id, batch, now_ns + self._idle_ns())
        return batch

    def _messages_max(self) -> int:
        return self._context.options.assets.batch_messages or ATOMIC_BATCH_MESSAGES_MAX

    def _idle_ns(self) -> int:
        return round((self._context.options.assets.batch_idle or ATOMIC_BATCH_IDLE_S) * _NS)

    def _without_level(self, batch_id: bytes, wanted: bytes, headers: bytes) -> bytes:
        level = read_number(wanted)
        if level is None or level > self._context.options.api_level:
            self._abandon(batch_id, "unsupported")
            raise Refused(Errors.REQUIRED_API_LEVEL)
        return without_header(headers, _LEVEL)

    def _keep(self, batch_id: bytes, batch: _Batch, message: tuple[bytes, bytes, bytes]) -> None:
        nbytes = sum(map(len, message))
        room = self._context.batch_room
        if room.nbytes + nbytes > ATOMIC_BATCHES_BYTES_MAX:
            self._abandon(batch_id, "large")
            raise Refused(Errors.BATCH_TOO_MANY)
        room.nbytes += nbytes
        batch.nbytes += nbytes
        batch.messages.append(message)

    # -- the end of a batch

    def _drop(self, batch_id: bytes) -> _Batch:
        batch = self._open.pop(batch_id)
        self._context.batch_room.batches -= 1
        self._context.batch_room.nbytes -= batch.nbytes
        if batch.timer is not None:
            batch.timer.cancel()
        return batch

    def _abandon(self, batch_id: bytes, reason: str) -> None:
        self._drop(batch_id)
        shown = batch_id.decode(errors="replace")
        self._context.advisories.batch_abandoned(self._stream.name, shown, reason)

    def _arm(self, batch_id: bytes, batch: _Batch, deadline_ns: int) -> None:
        def on_idle() -> None:
            due_ns = batch.touched_ns + self._idle_ns()
            if due_ns > self._context.clock.monotonic_ns():
                self._arm(batch_id, batch, due_ns)  # something came meanwhile
            else:
                self._abandon(batch_id, "timeout")

        batch.timer = self._context.timers.call_at(deadline_ns, on_idle)

    def _commit(self, batch_id: bytes, reply: bytes, *, ends: bool) -> None:
        batch, staging = self._drop(batch_id), self._stream.staging
        now_ns, before = staging.time(), Overlay()
        arrivals = [
            self._checks.admit(staging.renamed(subject), headers, payload, now_ns, before)
            for subject, headers, payload in batch.messages
        ]
        if ends:
            last = arrivals[-1]
            last.headers = with_headers(last.headers, b"%b: 1\r\n" % _COMMIT)
        shown = msgspec.json.encode(batch_id.decode(errors="replace"))
        extra = b',"batch":%b,"count":%d' % (shown, len(arrivals))
        sequence = staging.stage_together(arrivals)
        purges = [arrival.purge for arrival in arrivals if arrival.purge is not None]
        if reply:
            self._stream.confirm(sequence, reply, extra, purges[-1] if purges else None)
