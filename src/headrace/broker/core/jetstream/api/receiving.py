"""One backup on its way in: chunks are unpacked in slices and stored, and answered when they are.

Nothing of it is a stream until all of it is there: its messages are durable, its consumers are checked,
its end has come. Whatever goes wrong before takes everything back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from .....api.consumers import ConsumerConfig
from .....api.streams import StreamConfig, StreamInfo
from .....errors import StoreError
from .....limits import (
    HEADER_BYTES_MAX,
    RESTORE_IDLE_S,
    RESTORE_PENDING_BYTES,
    RESTORE_WAITING_BYTES_MAX,
)
from .....snapshots.archive import Unpacker
from .....snapshots.contents import (
    Began,
    ConsumerContent,
    Content,
    Ended,
    MessageContent,
    SnapshotFormatError,
)
from .....subjects import is_carried
from ...ports import Bus, Origin, StreamStore
from ...timers import Timer
from ..config.options import Refused
from ..context import Context
from ..headers import expires_at, is_block
from ..stream.publishes import leave_gap

Finished = Callable[[StreamInfo | None, Exception | None], None]
"""Told of a restored stream that is durable; or what went wrong."""
_NS: Final = 1_000_000_000
_SEQUENCE_MAX: Final = (1 << 63) - 1
_SLICE_NS: Final = 1_000_000
_SLICE_STEPS: Final = 8
_STORED_AT_ONCE: Final = 64
_GAP_AT_ONCE: Final = 500
_SHOWN_BYTES: Final = 100  # of a subject, in an error
_COPIED_BYTES_MAX: Final = 8 << 10  # of headers that a server adds to what was published


class RestoredConsumer(NamedTuple):
    """A consumer of a backup; ``config`` is checked."""

    content: ConsumerContent
    config: ConsumerConfig


class RestoredStreams(Protocol):
    """See ``engine.restores.Restores``."""

    @property
    def names(self) -> Collection[str]:
        """The streams in the making."""

    def announce(self, config: StreamConfig, then: Callable[[Exception | None], None]) -> None:
        """Have the disk know that a restore begins, so that a crash leaves nothing of it."""

    def open(self, config: StreamConfig) -> StreamStore:
        """A place for its messages. Raises StoreError, Refused."""

    def checked_consumer(
        self, config: StreamConfig, content: ConsumerContent, before: Mapping[str, RestoredConsumer]
    ) -> RestoredConsumer:
        """A consumer that can be made beside those before it. Raises Refused, SnapshotFormatError."""

    def finish(self, receiving: Receiving, check: Callable[[], None], then: Finished) -> None:
        """Make it a stream, with its consumers; ``then`` when that is durable, or when it failed.

        That takes several turns of the loop. ``check`` is called in the last one, and may raise Refused.
        """

    def abandon(self, name: str) -> None:
        """Remove what there is of it."""


class Receiving:
    """One restore of one stream."""

    def __init__(
        self,
        context: Context,
        restores: RestoredStreams,
        config: StreamConfig,
        first_seq: int,
        on_end: Callable[[Receiving, Exception | None], None],
    ) -> None:
        """``first_seq`` is where the stream begins, if that is known. ``on_end`` is told when all of it
        is stored and durable, or what went wrong."""
        self._context = context
        self._restores = restores
        self.config = config
        self._first_seq = first_seq
        self._on_end = on_end
        self.id = context.new_name(22)
        self.started_ns = context.clock.now_ns()
        self.client: dict[str, Any] | None = None
        self.reply = b""
        """Where the outcome goes: the reply of the empty chunk."""
        self.consumers: dict[str, RestoredConsumer] = {}
        self.created = ""
        self.store: StreamStore | None = None
        self.nbytes = 0
        """How many bytes of chunks have come."""
        self.failed: Exception | None = None
        self._unpacker = Unpacker(config.name)
        self._found: deque[Content] = deque()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._owed: list[bytes] = []
        self._held: list[Origin] = []
        self._input_ended = False
        self._ended: Ended | None = None
        self._removed = 0
        self._finished = False
        self._asked = False
        self._flying = False
        self._timer: Timer | None = None
        self._active_ns = 0
        self.is_over = False

    def start(self) -> None:
        """Its place is durable: chunks may come. Raises StoreError."""
        self.store = self._restores.open(self.config)
        self._active_ns = self._context.clock.monotonic_ns()
        self._arm()

    # -- chunks

    def chunk(self, reply: bytes, payload: bytes, origin: Origin | None) -> None:
        """Take one chunk; an empty one says that there are no more."""
        self._active_ns = self._context.clock.monotonic_ns()
        if self._input_ended:
            return
        if not reply:
            self.fail(SnapshotFormatError("every chunk needs a reply subject"))
            return
        if not payload:
            self._input_ended = True
            self.reply = reply
        else:
            self.nbytes += len(payload)
            self._waiting.append(payload)
            self._waiting_bytes += len(payload)
            self._owed.append(reply)
            if self._waiting_bytes > RESTORE_WAITING_BYTES_MAX and origin is not None:
                origin.hold()  # it does not wait for answers: let it
                self._held.append(origin)
        self._go_on()

    def take_owed(self) -> list[bytes]:
        """Those whose chunks are not answered."""
        owed, self._owed = self._owed, []
        return owed

    def _go_on(self) -> None:
        if not self._asked and not self.is_over and not self._flying:
            self._asked = True
            self._context.barrier.turns.ask(self)

    def turn(self) -> None:
        """One slice: unpack some and store it."""
        self._asked = False
        if self.is_over:
            return
        try:
            more = self._work()
        except (SnapshotFormatError, StoreError, Refused) as error:
            self.fail(error)
            return
        if self._context.storage.pending_bytes > RESTORE_PENDING_BYTES or self._finished:
            self._fly()
        elif more:
            self._go_on()

    def _work(self) -> bool:
        """Whether there is more to unpack of what has come."""
        now_ns = self._context.clock.monotonic_ns
        ends_ns = now_ns() + _SLICE_NS
        for _ in range(_SLICE_STEPS):
            if not self._step():
                self._all_taken()
                return False
            if now_ns() >= ends_ns:
                break
        return True

    def _step(self) -> bool:
        if self._found:
            self._store_some()
            return True
        found = self._unpacker.step()
        if found is not None:
            self._found.extend(found)
            return True
        if not self._waiting:
            return self._input_ended and self._remove_some()
        chunk = self._waiting.popleft()
        self._waiting_bytes -= len(chunk)
        self._unpacker.feed(chunk)
        return True

    def _all_taken(self) -> None:
        """Whoever sent what has come may send more."""
        held, self._held = self._held, []
        for origin in held:
            origin.release()
        for reply in self.take_owed():
            self._context.bus.publish(reply, b"", b"", b"")
        if self._input_ended and not self._finished:
            self._unpacker.finish()
            self._close()
            self._finished = True

    # -- storing

    def _store_some(self) -> None:
        """What was unpacked, as much of it as takes a fraction of a millisecond."""
        found, store = self._found, self.store
        assert store is not None  # chunks come when it is there
        ends_seq = store.last_seq + _GAP_AT_ONCE
        for _ in range(min(_STORED_AT_ONCE, len(found))):
            if store.last_seq >= ends_seq or not self._store(found[0]):
                return  # gaps are work, too: the next step goes on
            if isinstance(found.popleft(), ConsumerContent):
                return  # and so are consumers

    def _store(self, content: Content) -> bool:
        if isinstance(content, MessageContent):
            return self._store_message(content)
        if isinstance(content, ConsumerContent):
            consumer = self._restores.checked_consumer(self.config, content, self.consumers)
            self.consumers[content.name] = consumer
        elif isinstance(content, Began):
            self._first_seq = content.first_seq or self._first_seq
            self.created = content.created
        else:
            self._ended = content
        return True

    def _store_message(self, message: MessageContent) -> bool:
        """Store one; False if some of the gap before it is left."""
        store = self.store
        assert store is not None  # chunks come when it is there
        sequence, subject, headers, payload, stamp_ns = message
        if sequence < self._first_seq:
            return True  # removed before the backup, if not from its file
        _check(message)
        size = len(subject) + len(headers) + len(payload)
        most = self.config.max_msg_size
        if 0 <= most < len(headers) + len(payload):
            raise SnapshotFormatError(f"message {sequence} is larger than max_msg_size")
        if sequence <= store.last_seq:
            raise SnapshotFormatError(f"message {sequence} comes after {store.last_seq}")
        self._context.quota.admit(self.config.storage, size)
        self._context.barrier.want(self)
        if sequence > store.last_seq + 1 and not leave_gap(store, sequence, stamp_ns, _GAP_AT_ONCE):
            return False
        expires_ns = expires_at(headers, stamp_ns) if headers else 0
        if expires_ns:
            store.append_expiring(subject, headers, payload, stamp_ns, expires_ns)
        else:
            store.append(subject, headers, payload, stamp_ns)
        return True

    def _remove_some(self) -> bool:
        """Whether there was something left to remove of what was deleted behind the messages."""
        store, removed = self.store, () if self._ended is None else self._ended.removed
        if store is None or self._removed >= len(removed):
            return False
        self._context.barrier.want(self)
        store.remove(store.present(removed[self._removed : self._removed + _GAP_AT_ONCE]))
        self._removed += _GAP_AT_ONCE
        return True

    def _close(self) -> None:
        """All messages are stored, and what was deleted behind them is removed."""
        store, ended = self.store, self._ended
        if store is None or ended is None:
            raise SnapshotFormatError("the backup is cut off")
        last_seq = max(ended.last_seq, self._first_seq - 1)
        if last_seq > store.last_seq:
            if not last_seq < _SEQUENCE_MAX:
                raise SnapshotFormatError("the last sequence can not be")
            store.skip_to(last_seq + 1)

    # -- the disk

    def _fly(self) -> None:
        """Go on when what is staged is durable."""
        self._flying = True
        self._context.barrier.want(self)

    def begin_flush(self) -> Callable[[Bus, Exception | None], None]:
        return partial(self._flushed, self._flying)

    def _flushed(self, awaited: bool, bus: Bus, error: Exception | None) -> None:
        if self.is_over:
            return
        if error is not None:
            self.fail(error)
        elif awaited:
            self._flying = False
            self._active_ns = self._context.clock.monotonic_ns()
            if self._finished:
                self._over(None)
            else:
                self._go_on()

    # -- its end

    def _arm(self) -> None:
        deadline_ns = self._active_ns + round(RESTORE_IDLE_S * _NS)
        self._timer = self._context.timers.call_at(deadline_ns, self._look)

    def _look(self) -> None:
        busy = self._asked or self._flying
        idle_ns = self._context.clock.monotonic_ns() - self._active_ns
        if idle_ns < RESTORE_IDLE_S * _NS:
            self._arm()
        elif busy:
            self._active_ns = self._context.clock.monotonic_ns()
            self._arm()
        else:
            self.fail(SnapshotFormatError("it has stalled: no chunk has come"))

    def fail(self, error: Exception) -> None:
        """Take everything back."""
        if not self.is_over:
            self.failed = error
            self._restores.abandon(self.config.name)
            self._over(error)

    def _over(self, error: Exception | None) -> None:
        self.is_over = True
        self._waiting.clear()
        self._found.clear()
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, []
        for origin in held:
            origin.release()
        self._on_end(self, error)


def _check(message: MessageContent) -> None:
    """Refuse what no publish could have brought here. Raises SnapshotFormatError."""
    sequence, subject, headers, _, stamp_ns = message
    if not 0 < sequence <= _SEQUENCE_MAX or not 0 <= stamp_ns <= _SEQUENCE_MAX:
        raise SnapshotFormatError(f"message {sequence} has no sequence, or no time, that can be")
    if not is_carried(subject):
        shown = repr(subject[:_SHOWN_BYTES].decode(errors="backslashreplace"))
        raise SnapshotFormatError(
            f"message {sequence} has the subject {shown}: accepted are tokens without whitespace, "
            "separated by dots, and no wildcards"
        )
    if headers and not is_block(headers):
        raise SnapshotFormatError(f"the headers of message {sequence} are no header block")
    if len(headers) > HEADER_BYTES_MAX + _COPIED_BYTES_MAX:
        raise SnapshotFormatError(f"message {sequence} has {len(headers)} bytes of headers")
