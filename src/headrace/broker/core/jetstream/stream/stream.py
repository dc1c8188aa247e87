"""One stream: taking messages in, keeping them within limits, waking who waits for them.

Ingest only stages. The acknowledgement leaves through the gate when the flush that carries the message has
completed, and consumers see the message from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from .....api.envelope import encode_pub_error
from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamConfig
from .....errors import StoreError, StoreReadError
from .....limits import HEADER_BYTES_MAX
from .....subjects import SubjectFilter
from .....wire.frames import Frame
from .....wire.inprocess import PublishRun
from ...ports import Origin, StreamStore
from ...server_headers import without_requester
from ..config.refused import Refused
from ..config.stream import compile_transform
from ..context import Context
from ..headers.fast_reply import FAST
from ..headers.published import message_id, sole_message_id, sole_message_ids
from ..publish.admission import Admission, PublishChecks
from ..publish.atomic_batches import BATCH_MARK, Batches
from ..publish.duplicate_window import DuplicateWindow
from ..publish.fast_batches import FastBatches
from ..publish.republish import republisher_of
from ..schedule.schedules import Schedules
from ..tick.flush_barrier import PubAcks, store_refusal
from ..tick.retry import Unread
from .copying import CopyingStream
from .expiry import Expiry
from .retention import Retention, retention_of
from .waiters import Hungry

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer

__all__ = ["Stream"]

_NS: Final = 1_000_000_000
_REBUILD_BATCH: Final = 1024
_FAST_END: Final = FAST[-1]
_FAST_THEN: Final = FAST + b" "


class Stream(CopyingStream):
    """A stream that is open for publishing. Made by the engine, which also closes it."""

    def __init__(
        self, context: Context, config: StreamConfig, created_ns: int, store: StreamStore
    ) -> None:
        self.context = context
        self.config = config
        self.created_ns = created_ns
        self.store = store
        self.name = config.name
        self.acks = PubAcks(config.name, context.options.domain)
        self.consumers: dict[str, Consumer] = {}
        self.waiters = Hungry()
        """Consumers with waiting requests that have seen everything durable."""
        self.holding: dict[Consumer, None] = {}
        self.crowded: dict[bytes, None] = {}
        self.thinning = self.behind = self.rolling = None
        self.removals = 0
        self.unread = Unread(context, f"stream {config.name!r}")
        self.readers = {}
        self.crowd = {}
        self.intake = None
        self.blocked: dict[Consumer, None] = {}
        """Consumers that stopped because a receiver has too much unsent output."""
        self.window = DuplicateWindow(0)
        self.retention: Retention
        self._append = store.append
        self._now_ns = context.clock.now_ns
        self._last_ns = 0
        self._dirty = False
        self.is_closed = False
        self._shown_seq = store.durable_seq  # who waits was told of everything up to this
        self.expiry = Expiry(self)
        self.schedules: Schedules | None = None
        self.batches = Batches(self)
        self.fast = FastBatches(self)
        self.republisher = None
        self._sinks: dict[bytes, None] = {}
        self._configure()

    # -- lifecycle

    def open(self) -> None:
        """Start listening on the stream's subjects."""
        self._listen([] if self.config.mirror else self.config.subjects)
        self.trim()  # a crash may have kept a message and not what it removed
        self.arm()

    def close(self) -> None:
        """Stop listening; consumers are closed by the registry."""
        self.is_closed = True
        self.unread.cancel()
        self.context.removals.wake(self.unread)  # they end now, as there is nothing to remove
        self._listen([])
        self.expiry.cancel()
        if self.schedules is not None:
            self.schedules.cancel()
        self.batches.close()
        self.fast.close()

    def reconfigure(self, config: StreamConfig) -> None:
        """Take an updated, checked configuration."""
        self.config = config
        self._configure()
        if not config.allow_atomic:
            self.batches.close()
        if not config.allow_batched:
            self.fast.close()
        self._listen(config.subjects)
        self.trim()
        self.expiry.cancel()
        self.expiry.arm()

    def recover(self) -> None:
        """Rebuild what is not stored by itself: reminders of what is due, and the duplicate window."""
        self._rebuild_reminders()
        self._last_ns = self.store.state.last_ns
        if self.window.window_ns:
            self.unread.attempt(self._rebuild_window)

    def _rebuild_reminders(self) -> None:
        self.unread.attempt(self.expiry.rebuild)
        if self.schedules is not None:
            self.unread.attempt(self.schedules.rebuild)

    def _rebuild_window(self) -> None:
        try:
            self._read_window()
        except StoreReadError as error:
            self.window.unread = error
            raise
        self.window.unread = None

    def _read_window(self) -> None:
        store = self.store
        since_ns = self._now_ns() - self.window.window_ns
        position = store.next_with_headers(store.sequence_at(since_ns))
        while messages := store.read(position, None, _REBUILD_BATCH, 1 << 24, store.last_seq):
            position = store.next_with_headers(messages[-1].sequence + 1)
            for message in messages:
                found = message_id(message.headers)
                if found:
                    self.window.add(found, message.sequence, message.timestamp_ns)

    def _configure(self) -> None:
        config = self.config
        self.transform = compile_transform(config, self.context.random)
        self.retention = retention_of(self)
        self.checks = PublishChecks(self)
        self.expiry.configure()
        former, self.republisher = self.republisher, republisher_of(config, self.context.random)
        if former is not None:
            self.republisher = former.succeeded_by(self.republisher)
        if config.allow_msg_schedules and self.schedules is None:
            self.schedules = Schedules(self)
        self._thins_later = config.discard == "old" and not self.context.quota.bounds(
            config.storage
        )
        self._crowds = config.max_msgs_per_subject > 1 and self._thins_later
        self._replaces = config.max_msgs_per_subject == 1 and self._thins_later
        if self._replaces != (self.store.superseded is not None):
            self.store.superseded = [] if self._replaces else None
        # With none of these a message without headers needs no look at all.
        self.is_plain = (
            self.transform is None
            and self.republisher is None
            and not config.sealed
            and not config.no_ack
            and not config.allow_msg_counter
            and not config.allow_msg_schedules
            and config.max_msg_size < 0
            and config.retention != "interest"
            and self._thins_later
        )
        self._bounded = config.max_msgs > 0 or config.max_bytes > 0
        window_ns = round(config.duplicate_window * _NS)
        if self.window.window_ns != window_ns:
            self.window.window_ns = window_ns

    def _listen(self, subjects: Iterable[str]) -> None:
        wanted = dict.fromkeys(subject.encode() for subject in subjects)
        bus, before = self.context.bus, self._sinks
        left = [pattern for pattern in before if pattern not in wanted]
        new = [pattern for pattern in wanted if pattern not in before]
        self.context.taken.remove(left, self.name)
        self.context.taken.add(new, self.name)
        self._sinks = wanted
        bus.remove_sinks(left, self.ingest)
        bus.add_sinks(new, self.ingest, self.ingest_many, self.ingest_run)

    # -- ingest

    def ingest(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        """Take one published message: stage it, or answer why not."""
        if headers or not self.is_plain or (reply and reply[-1] == _FAST_END):
            if reply[-4:] == FAST:
                self.fast.ingest(subject, reply, headers, payload)
                return
            if headers or not self.is_plain:
                self._ingest_checked(subject, reply, headers, payload)
                return
        now_ns = self._now_ns()
        if now_ns < self._last_ns:
            now_ns = self._last_ns  # the clock was set back; a stream's times never are
        self._last_ns = now_ns
        try:
            sequence = self._append(subject, b"", payload, now_ns)
        except StoreError as error:
            self._refuse(reply, store_refusal(error))
            return
        if reply:
            self.acks.waiting.append((sequence, reply))
        if self._crowds:
            self.crowded[subject] = None
        if not self._dirty:
            self._mark_dirty()

    def ingest_many(self, frames: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Take published messages, if they need no more than staging; else leave them.

        That is so if their headers say nothing to the stream, or an id each, which must be new.
        """
        if not self.is_plain:
            return frames
        # Lists, as `zip(*frames)` makes an iterator of each, for the garbage collector to look at.
        blocks = [frame[3] for frame in frames]
        headed = any(blocks)
        if frames[0][2][-4:] == FAST:
            return frames if headed else self.fast.ingest_many(frames)
        replies = [frame[2] for frame in frames]
        if _FAST_THEN in b" ".join(replies) + b" ":
            return frames
        names: list[bytes] | None = None
        if headed:
            names = sole_message_ids(blocks)
            if names is None or max(map(len, blocks)) > HEADER_BYTES_MAX:
                return frames
            if names and not self.window.are_new(names, self.time()):
                return frames
        first = self.store.last_seq + 1
        subject = frames[0][1]
        if [frame[1] for frame in frames].count(subject) == len(frames):
            payloads = [frame[4] for frame in frames]
            taken = self.take_many(subject, payloads, blocks if headed else ())
        else:
            taken = self.take_each(frames)
        if names and taken:
            self.window.add_many(names[:taken], first, self._last_ns)
        numbered = zip(range(first, first + taken), replies, strict=False)
        if b"" in replies:
            self.acks.waiting += [(number, reply) for number, reply in numbered if reply]
        else:
            self.acks.waiting += numbered
        return frames[taken:]

    def ingest_run(self, run: PublishRun, origin: Origin | None) -> Sequence[Frame]:
        """Take a run as ``ingest_many`` would its frames; if all are staged, one answer is for all."""
        if not self.is_plain:
            return run.frames
        first = self.store.last_seq + 1
        taken = self.take_many(run.subject, run.payloads)
        if taken == len(run.payloads):
            self.acks.waiting.append((self.store.last_seq, run.reply))
            return ()
        frames = run.frames
        self.acks.waiting += zip(count(first), [frame[2] for frame in frames[:taken]], strict=False)
        return frames[taken:]

    def _ingest_named(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, name: bytes
    ) -> None:
        """Take a message that has at most an id, and nothing else a plain stream would look at."""
        now_ns = self.time()
        if name:
            try:
                duplicate_of = self.window.find(name, now_ns)
            except StoreReadError as error:
                self._refuse(reply, store_refusal(error))
                return
            if duplicate_of:
                self._acknowledge_duplicate(duplicate_of, reply)
                return
        try:
            sequence = self._append(subject, headers, payload, now_ns)
        except StoreError as error:
            self._refuse(reply, store_refusal(error))
            return
        if name:
            self.window.add(name, sequence, now_ns)
        if reply:
            self.acks.waiting.append((sequence, reply))
        if self._crowds:
            self.crowded[subject] = None
        if not self._dirty:
            self._mark_dirty()

    def _ingest_checked(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        if self.is_plain and len(headers) <= HEADER_BYTES_MAX:
            name = sole_message_id(headers)
            if name is not None:
                self._ingest_named(subject, reply, headers, payload, name)
                return
        headers = without_requester(headers)
        if self.config.no_ack:
            reply = b""
        if BATCH_MARK in headers:
            self.batches.take(subject, reply, headers, payload)
            return
        try:
            sequence, found = self.take_checked(subject, headers, payload)
        except Refused as refusal:
            self._refuse(reply, refusal.error)
            return
        except StoreError as error:
            self._refuse(reply, store_refusal(error))
            return
        if found.duplicate_of:
            self._acknowledge_duplicate(sequence, reply)
        elif reply and found.extra:
            self._confirm(sequence, reply, found.extra)
        elif reply:
            self._confirm(sequence, reply)

    def take_plain(self, subject: bytes, payload: bytes) -> int:
        """Stage a message without headers of a plain stream; returns its sequence. Raises StoreError."""
        sequence = self._append(subject, b"", payload, self.time())
        if self._crowds:
            self.crowded[subject] = None
        if not self._dirty:
            self._mark_dirty()
        return sequence

    def take_many(
        self, subject: bytes, payloads: Sequence[bytes], blocks: Sequence[bytes] = ()
    ) -> int:
        """The same for several, which may have headers that need no look; see ``append_many``.

        Returns how many were staged, the others can not be.
        """
        store = self.store
        before = store.last_seq
        if self._crowds:
            self.crowded[subject] = None
        if not self._dirty:
            self._mark_dirty()
        try:
            store.append_many(subject, payloads, self.time(), blocks)
        except StoreError:
            pass  # those that were not staged are left, and refused one by one
        return store.last_seq - before

    def take_each(self, frames: Sequence[Frame]) -> int:
        """The same for publishes on several subjects."""
        append, now_ns = self._append, self.time()
        taken = 0
        try:
            for _op, subject, _reply, headers, payload in frames:
                append(subject, headers, payload, now_ns)
                taken += 1
        except StoreError:
            pass  # as above
        if self._crowds:
            self.crowded.update(dict.fromkeys([frame[1] for frame in frames]))
        if not self._dirty:
            self._mark_dirty()
        return taken

    def take_checked(self, subject: bytes, headers: bytes, payload: bytes) -> tuple[int, Admission]:
        """Stage a message as its headers and the configuration want, unless it is a duplicate.

        Returns the sequence it has, or had already. Raises Refused, StoreError.
        """
        subject, now_ns = self.renamed(subject), self.time()
        self.rolling = None
        found = self.checks.admit(subject, headers, payload, now_ns)
        if found.duplicate_of:
            return found.duplicate_of, found
        if found.headers:
            headers = found.headers
        if found.payload is not None:
            payload = found.payload
        content_bytes = len(subject) + len(headers) + len(payload)
        self.context.quota.admit(self.config.storage, content_bytes)
        sequence = self._store(subject, headers, payload, now_ns, found.expires_ns)
        if not self._dirty:
            self._mark_dirty()
        if found.message_id:
            self.window.add(found.message_id, sequence, now_ns)
        self._after_append(subject, sequence, found.rollup)
        if found.ends:
            self.purge(SubjectFilter([found.ends]))
        return sequence, found

    def _acknowledge_duplicate(self, sequence: int, reply: bytes) -> None:
        if not reply:
            return
        if sequence <= self.store.durable_seq:
            self.context.bus.publish(reply, b"", b"", self.acks.duplicate(sequence))
        else:
            self.acks.add_duplicate(sequence, reply)
            self.context.gate.want(self.acks)

    def _refuse(self, reply: bytes, error: ErrorSpec) -> None:
        if reply:
            self.context.bus.publish(reply, b"", b"", encode_pub_error(self.name, error))

    def _mark_dirty(self) -> None:
        self._dirty = True
        context = self.context
        context.dirty_streams.append(self)
        context.appended[self] = None
        context.gate.want(self.acks)

    # -- batches

    def end_of_batch(self) -> None:
        """Once per tick with new messages: bring the stream within its limits."""
        self._dirty = False
        if self.is_closed:
            return
        if self.is_crowded:
            self.thin()
        if self._bounded:
            self.unread.attempt(self.trim_to_size)
        self.arm()

    def wake_after_flush(self) -> None:
        """Let the next flush wake the waiters, even if it carries no message."""
        self.context.appended[self] = None

    def flush_begins(self) -> None:
        """What comes from here on needs another flush, even if this tick is not over."""
        self._dirty = False

    def on_durable(self) -> None:
        """New messages are on disk: who waits may have them."""
        if self.republisher is not None:
            self.republisher.release(self.store.durable_seq, self.context.bus)
        if self.readers:
            self.context.copies.wake(self.readers)
        first, last = self._shown_seq + 1, self.store.durable_seq
        self._shown_seq = last
        if self.waiters:
            woken = self.waiters.wake(first, lambda: self.store.subjects_between(first, last))
            self.context.ready.update(dict.fromkeys(woken))

    def resume_blocked(self) -> None:
        """Receivers have room again: who stopped for that reason goes on."""
        if self.blocked:
            self.context.ready.update(self.blocked)
            self.blocked.clear()

    # -- removal

    def _note_done(self, sequences: Sequence[int]) -> None:
        self.context.removed.setdefault(self, []).extend(sequences)

    def take_back(self, done: Sequence[int]) -> None:
        """A flush failed: its messages are gone again, and what it removed is back.

        ``done`` are the removed ones that nobody needs: they are removed once more.
        """
        self.removals += 1
        self.context.removals.take_back(self.unread, self.store.last_seq)
        self._rebuild_reminders()
        self.arm()
        if self.republisher is not None:
            self.republisher.take_back(self.store.last_seq)
        self.window.forget_after(self.store.last_seq)
        self.unread.attempt(partial(self.remove_done, done))
        self.retention.taken_back()
        self.trim()

    # -- questions

    def check_not_sealed(self) -> None:
        """Refuse when the stream is sealed."""
        if self.config.sealed:
            raise Refused(Errors.STREAM_SEALED)
