"""The endpoints STREAM.SNAPSHOT and STREAM.RESTORE, and what is under way because of them.

A backup leaves in the form of nats-server 2.15; one of that or of the older form is taken in.

``Sending`` is one backup on its way out: slices of the stream become chunks, as fast as they are answered.
Each turn reads and encodes one slice, and only when there is room for it: the receiver has answered most
of what was sent, and has not too much unsent output. So a backup of any size takes the memory of a window,
and the loop a millisecond or two at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .....api.base import to_wire
from .....api.envelope import encode_error, encode_response
from .....api.errors import Errors
from .....api.snapshots import (
    CHUNK_BYTES_DEFAULT,
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    WINDOW_BYTES_DEFAULT,
    WINDOW_BYTES_MAX,
    RestoreRequest,
    RestoreResponse,
    SnapshotRequest,
    SnapshotResponse,
)
from .....api.streams import StreamInfo, StreamStateInfo
from .....errors import StoreError
from .....limits import (
    RESTORE_IDLE_S,
    RESTORES_MAX,
    SNAPSHOT_IDLE_S,
    SNAPSHOT_INTEREST_S,
    SNAPSHOT_SLICE_BYTES,
    SNAPSHOTS_MAX,
)
from .....message import StoredRow
from .....snapshots.archive import END, MAGIC, consumer_entry, message_entry, state_entry
from .....snapshots.framing import FRAME_BYTES_MAX, IDENTIFIER, frame
from .....subjects import is_valid_subject
from ...ports import Origin, Target, Watch
from ...timers import Timer
from ..config.options import Refused
from ..config.sources import check_counts
from ..context import Context
from ..stream.stream import Stream
from .dispatcher import ApiDispatcher, Assets, Call, stream_of
from .streams import StreamsApi, stream_info

if TYPE_CHECKING:
    from .receiving import Receiving, RestoredStreams


_SLICE_MESSAGES: Final = 256
_ACKS: Final = b"$JS.SNAPSHOT.ACK.>"
_CHUNKS: Final = b"$JS.SNAPSHOT.RESTORE.>"
_ID_TOKEN: Final = 4
_NS: Final = 1_000_000_000
_CREATED: Final = "stream_create_response"


class DamagedError(StoreError):
    """A stored message cannot be read any more: a backup without it would not tell."""


def _contents(
    context: Context, stream: Stream, state: StreamStateInfo, consumers: bool
) -> Iterator[bytes]:
    """The archive, a slice at a time. Raises StoreError."""
    now_ns = context.clock.now_ns()
    included = list(stream.consumers.values()) if consumers else []
    document = {**to_wire(state), "consumer_count": len(included)}
    yield MAGIC + state_entry(document, now_ns)
    for consumer in included:
        config = {**to_wire(consumer.config), "name": consumer.name}
        yield consumer_entry(consumer.name, config, consumer.backup(state.last_seq), now_ns)
    store, sequence = stream.store, state.first_seq
    while sequence <= state.last_seq:
        rows = store.rows(sequence, None, _SLICE_MESSAGES, SNAPSHOT_SLICE_BYTES, state.last_seq)
        upto = rows[-1][0] if rows else state.last_seq
        _check_complete(stream, rows, sequence, upto)
        sequence = upto + 1
        yield b"".join([message_entry(*row) for row in rows])
    yield END


def _check_complete(stream: Stream, rows: list[StoredRow], first: int, last: int) -> None:
    """What is damaged is passed over by a read, and may not be by a backup."""
    store = stream.store
    missing = store.count(None, first) - store.count(None, last + 1) - len(rows)
    if missing:
        raise DamagedError(
            f"{missing} messages between {first} and {last} of stream {stream.name!r} are damaged"
        )


class Sending:
    """One backup of one stream."""

    def __init__(
        self,
        context: Context,
        stream: Stream,
        request: SnapshotRequest,
        state: StreamStateInfo,
        on_end: Callable[[Sending, str], None],
    ) -> None:
        """``on_end`` is told when it is over, and why if it failed."""
        self._context = context
        self.stream = stream
        self.id = context.new_name(22)
        self.started_ns = context.clock.now_ns()
        self.client: dict[str, Any] | None = None
        self._on_end = on_end
        self._deliver = request.deliver_subject.encode()
        self._ack = b"$JS.SNAPSHOT.ACK.%b.%b." % (stream.name.encode(), self.id.encode())
        chunk = request.chunk_size or CHUNK_BYTES_DEFAULT
        self._chunk = min(max(chunk, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
        window = request.window_size or WINDOW_BYTES_DEFAULT
        window = min(max(window, CHUNK_BYTES_MIN), WINDOW_BYTES_MAX)
        self._most = max(window, self._chunk) // self._chunk
        self._contents = _contents(context, stream, state, not request.no_consumers)
        self._out = bytearray(IDENTIFIER)
        self._index = 0
        self._under_way = 0
        self._exhausted = False
        self._asked = False
        self._timer: Timer | None = None
        self._active_ns = 0
        self._watch = Watch(self._deliver, b"", self._interest_changed)
        self._waits_for_interest = False
        self.is_over = False
        self.blocked = False
        """Whether it waits for the receiver's output to shrink."""

    def start(self) -> None:
        """The answer is out: send the first chunk when somebody listens."""
        self._context.bus.watch(self._watch)
        self._active_ns = self._context.clock.monotonic_ns()
        self._waits_for_interest = not self._watch.listened
        self._arm()
        self.go_on()

    def answered(self) -> None:
        """The receiver has a chunk."""
        self._under_way = max(0, self._under_way - 1)
        self._active_ns = self._context.clock.monotonic_ns()
        self.go_on()

    def go_on(self) -> None:
        """Take a turn, if there is something to do in it."""
        if not self._asked and not self.is_over:
            self._asked = True
            self._context.barrier.turns.ask(self)

    def turn(self) -> None:
        """One slice of the stream, and what can be sent of it."""
        self._asked = self.blocked = False
        if self.is_over or (self._waits_for_interest and not self._watch.listened):
            return
        self._waits_for_interest = False
        target = self._context.bus.resolve(self._deliver)
        if target is None:
            self._end("408 No Interest", "no interest")
        elif self.stream.is_closed:
            self._end("500 stream was deleted", "stream was deleted")
        else:
            self._advance(target)

    def _advance(self, target: Target) -> None:
        if target.blocked:
            self.blocked = True
            return
        if self._under_way >= self._most:
            return
        if len(self._out) < self._chunk and not self._exhausted:
            try:
                self._read()
            except StoreError as error:
                self._end(f"500 {error}", str(error))
                return
        self._send(target)
        if self.is_over:
            return
        if self._exhausted and len(self._out) < self._chunk:
            if self._out:
                target.send(self._deliver, b"", b"", bytes(self._out))
            self._end("204", "")
        elif self._under_way < self._most:
            self.go_on()

    def _read(self) -> None:
        """Encode the next slice."""
        data = next(self._contents, None)
        if data is None:
            self._exhausted = True
            return
        for at in range(0, len(data), FRAME_BYTES_MAX):
            self._out += frame(data[at : at + FRAME_BYTES_MAX])

    def _send(self, target: Target) -> None:
        """What is there in whole chunks, as many as may be under way."""
        out, size = self._out, self._chunk
        at = 0
        while len(out) - at >= size and self._under_way < self._most:
            self._index += 1
            self._under_way += 1
            reply = b"%b%d.%d" % (self._ack, size, self._index)
            target.send(self._deliver, reply, b"", bytes(out[at : at + size]))
            at += size
        if at:
            del out[:at]
            self._active_ns = self._context.clock.monotonic_ns()

    def _interest_changed(self, listened: bool) -> None:
        self.go_on()

    def _arm(self) -> None:
        wait_s = SNAPSHOT_INTEREST_S if self._waits_for_interest else SNAPSHOT_IDLE_S
        deadline_ns = self._active_ns + round(wait_s * _NS)
        self._timer = self._context.timers.call_at(deadline_ns, self._look)

    def _look(self) -> None:
        """Time has passed: has the receiver done anything?"""
        idle_ns = self._context.clock.monotonic_ns() - self._active_ns
        if self._waits_for_interest and idle_ns >= SNAPSHOT_INTEREST_S * _NS:
            self._end("408 No Interest", "no interest")
        elif idle_ns >= SNAPSHOT_IDLE_S * _NS:
            self._end("408 No Flow Response", "no flow response")
        else:
            self._arm()

    def stop(self) -> None:
        """Say nothing more."""
        if not self.is_over:
            self.is_over = True
            self._contents = iter(())
            self._out.clear()
            self._context.bus.unwatch(self._watch)
            if self._timer is not None:
                self._timer.cancel()

    def _end(self, status: str, error: str) -> None:
        self.stop()
        headers = f"NATS/1.0 {status}\r\n\r\n".encode()
        self._context.bus.publish(self._deliver, b"", headers, b"")
        self._on_end(self, error)


def _token(subject: bytes) -> str:
    tokens = subject.split(b".", _ID_TOKEN + 1)
    return tokens[_ID_TOKEN].decode(errors="replace") if len(tokens) > _ID_TOKEN else ""


class SnapshotsApi:
    """Backups of an account's streams, out and in."""

    def __init__(
        self,
        context: Context,
        assets: Assets,
        api: ApiDispatcher,
        streams: StreamsApi,
        restored: RestoredStreams,
    ) -> None:
        self._context = context
        self._assets = assets
        self._api = api
        self._streams = streams
        self._restored = restored
        self._sending: dict[str, Sending] = {}
        self._receiving: dict[str, Receiving] = {}
        api.add("STREAM.SNAPSHOT", "stream_snapshot_response", self._snapshot)
        api.add(
            "STREAM.RESTORE",
            "stream_restore_response",
            self._restore,
            blank={"deliver_subject": ""},
            changes=True,
            paced=True,
        )
        context.bus.add_sink(_ACKS, self._answered)
        context.bus.add_sink(_CHUNKS, self._chunk)
        context.bus.on_unblocked(self._unblocked)

    # -- out

    def _snapshot(self, call: Call) -> None:
        if call.payload.strip() in (b"", b"{}"):
            raise Refused(Errors.BAD_REQUEST)
        stream = stream_of(self._assets, call.names[0])
        request = call.read(SnapshotRequest)
        if not is_valid_subject(request.deliver_subject.encode()):
            raise Refused(Errors.SNAPSHOT_DELIVER_SUBJECT_INVALID)
        if len(self._sending) >= SNAPSHOTS_MAX:
            raise Refused(Errors.STREAM_SNAPSHOT, err=f"{SNAPSHOTS_MAX} snapshots are under way")
        info = stream_info(stream, self._context, listed=True)
        state = info.state
        durable = stream.store.durable_seq
        if state.last_seq > durable:  # what is not durable yet might never have been
            state = msgspec.structs.replace(state, last_seq=max(durable, state.first_seq - 1))

        sending = Sending(self._context, stream, request, state, self._sent)
        sending.client = _describe(call.origin)
        self._sending[sending.id] = sending
        self._api.complete(call, SnapshotResponse(config=info.config, state=state))
        self._context.advisories.snapshot_created(stream.name, state, sending.client)
        sending.start()

    def _sent(self, sending: Sending, error: str) -> None:
        self._sending.pop(sending.id, None)
        self._context.advisories.snapshot_completed(
            sending.stream.name, sending.started_ns, sending.client, error
        )

    def _answered(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        sending = self._sending.get(_token(subject))
        if sending is None:
            return False
        sending.answered()
        return None

    def _unblocked(self) -> None:
        for sending in list(self._sending.values()):
            if sending.blocked:
                sending.go_on()

    # -- in

    def _restore(self, call: Call) -> None:
        if call.payload.strip() in (b"", b"{}"):
            raise Refused(Errors.BAD_REQUEST)
        request = call.read(RestoreRequest, lambda asked: check_counts(asked.config))
        name = call.names[0]
        config = request.config
        if not config.name:
            config = msgspec.structs.replace(config, name=name)
        if config.name != name:
            raise Refused(Errors.STREAM_NAME_MISMATCH)
        config = self._streams.checked(config)
        self._streams.check_room(config)
        if name in self._assets.streams or name in self._restored.names:
            raise Refused(Errors.STREAM_NAME_EXISTS_RESTORE)
        if len(self._receiving) >= RESTORES_MAX:
            raise Refused(Errors.STREAM_RESTORE, err=f"{RESTORES_MAX} restores are under way")
        self._streams.check_overlap(config)
        from .receiving import Receiving

        receiving = Receiving(
            self._context, self._restored, config, request.state.first_seq, self._received
        )
        receiving.client = _describe(call.origin)

        def announced(error: Exception | None) -> None:
            if error is not None:
                self._api.fail(call, error)
            else:
                self._expect(call, receiving)

        self._restored.announce(config, announced)

    def _expect(self, call: Call, receiving: Receiving) -> None:
        """The disk knows that a restore begins: take its chunks."""
        try:
            receiving.start()
        except (StoreError, Refused) as error:
            self._restored.abandon(receiving.config.name)
            if isinstance(error, StoreError):
                self._api.fail(call, error)
            else:
                self._api.refuse(call, error)
            return
        self._receiving[receiving.id] = receiving
        name = receiving.config.name
        subject = f"$JS.SNAPSHOT.RESTORE.{name}.{receiving.id}"
        self._context.advisories.restore_created(name, receiving.client)
        self._api.complete(call, RestoreResponse(deliver_subject=subject))

    def _chunk(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool | None:
        receiving = self._receiving.get(_token(subject))
        if receiving is None:
            return False
        if receiving.failed is not None:
            self._tell_failed(receiving, [reply])
        else:
            receiving.chunk(reply, payload, origin)
        return None

    def _received(self, receiving: Receiving, error: Exception | None) -> None:
        """All of it is durable, or it is over."""
        if error is not None:
            self._finished(receiving, None, error)
            return
        check = partial(self._streams.check_overlap, receiving.config)
        self._restored.finish(receiving, check, partial(self._finished, receiving))

    def _finished(
        self, receiving: Receiving, info: StreamInfo | None, error: Exception | None
    ) -> None:
        """The stream is there, and the disk knows it; or nothing of it is."""
        context = self._context
        context.advisories.restore_completed(
            receiving.config.name, receiving.started_ns, receiving.client, receiving.nbytes
        )
        if error is None:
            del self._receiving[receiving.id]
            context.bus.publish(receiving.reply, b"", b"", encode_response(_CREATED, info))
            return
        receiving.failed = error
        told = [*receiving.take_owed(), *([receiving.reply] if receiving.reply else ())]
        self._tell_failed(receiving, told)
        # Whoever goes on sending for a while learns why that is of no use.
        later_ns = context.clock.monotonic_ns() + round(RESTORE_IDLE_S * _NS)
        context.timers.call_at(later_ns, partial(self._receiving.__delitem__, receiving.id))

    def _tell_failed(self, receiving: Receiving, replies: list[bytes]) -> None:
        error = receiving.failed
        spec = error.error if isinstance(error, Refused) else Errors.STREAM_RESTORE.with_(err=error)
        body = encode_error(_CREATED, spec)
        for reply in replies:
            if reply:
                self._context.bus.publish(reply, b"", b"", body)


def _describe(origin: Origin | None) -> dict[str, Any] | None:
    return None if origin is None else origin.describe()
