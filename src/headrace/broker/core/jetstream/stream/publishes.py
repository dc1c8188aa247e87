"""What is published to one stream: staged and acknowledged, or refused with an answer.

Publishing only stages. An acknowledgement leaves with the flush that carries its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count as count_from
from typing import TYPE_CHECKING, Final

from .....api.envelope import encode_pub_error
from .....errors import StoreError, StoreReadError
from .....limits import HEADER_BYTES_MAX
from .....subjects import is_literal
from ...server_headers import without_requester
from ..config.refused import Refused
from ..headers.fast_reply import FAST
from ..headers.published import sole_expectations, sole_message_ids, sole_places
from ..publish.admission import Checks
from ..publish.atomic_batches import BATCH_MARK, AtomicBatches
from ..publish.fast_batches import FastBatches
from ..tick.flush_barrier import store_refusal

if TYPE_CHECKING:
    from .....api.errors import ErrorSpec
    from .....api.streams import StreamConfig
    from .....wire.frames import Frame
    from .....wire.inprocess import PublishRun
    from ...ports.bus import Origin
    from ..ports import Arrival, Pending
    from ..tick.flush_barrier import PubAcks
    from .staging import Staging
    from .stream import Stream

_FAST_END: Final = FAST[-1]
_FAST_THEN: Final = FAST + b" "


def _distinct(subjects: Sequence[bytes]) -> int:
    """How many of these there are before one is there again."""
    seen: set[bytes] = set()
    for subject in subjects:
        if subject in seen:
            break
        seen.add(subject)
    return len(seen)


def _equal(expected: Sequence[int], lasts: Sequence[int]) -> int:
    """How many at the front of ``lasts`` are as expected."""
    if lasts == expected[: len(lasts)]:
        return len(lasts)
    return next(at for at, last in enumerate(lasts) if last != expected[at])


class Publishes:
    """The sinks of a stream's subjects."""

    def __init__(self, stream: Stream, staging: Staging, acks: PubAcks) -> None:
        self._stream = stream
        self._acks = acks
        self.staging = staging
        self.name = stream.name
        self.store = stream.store
        self._steady_ns = stream.context.clock.monotonic_ns
        self.checks = Checks(stream.context, stream.config, stream.store, stream.window)
        self.atomic = AtomicBatches(stream.context, self, self.checks)
        self.fast = FastBatches(stream.context, self, self.checks)

    @property
    def config(self) -> StreamConfig:
        return self._stream.config

    def configure(self) -> None:
        """Take over the stream's configuration: batches that are not allowed any more are forgotten."""
        self.checks.configure(self.config)
        if not self.config.allow_atomic:
            self.atomic.close()
        if not self.config.allow_batched:
            self.fast.close()

    def close(self) -> None:
        self.atomic.close()
        self.fast.close()

    def let_go(self) -> None:
        """The stream is no more, a while after ``close``."""
        self.checks.let_go()
        del self.atomic, self.fast

    # -- sinks

    def ingest(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        """One published message: stage it, or answer why not."""
        if reply and reply[-1] == _FAST_END and reply[-4:] == FAST:
            self.fast.ingest(subject, reply, headers, payload)
            return
        names: Sequence[bytes] = ()
        if headers or not self.staging.is_plain:
            right = 0
            if self.staging.is_plain:
                right, names = self._right((subject,), (headers,))
            if not right:
                self._ingest_checked(subject, reply, headers, payload)
                return
        try:
            sequence = self.staging.stage(subject, headers, payload)
        except StoreError as error:
            self.refuse(reply, store_refusal(error))
            return
        if names:
            self._stream.window.add(names[0], sequence, self._steady_ns())
        if reply:
            self._acks.waiting.append((sequence, reply))

    def ingest_many(self, frames: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Published messages: stage those at the front that need no more than that; returns the others.

        That is so if their headers say nothing to the stream, or what is right at a glance: a new id
        each, or the last sequence of their subjects or of the stream.
        """
        if not self.staging.is_plain:
            return frames
        # Lists, as `zip(*frames)` makes an iterator of each, for the garbage collector to look at.
        blocks = [frame[3] for frame in frames]
        headed = any(blocks)
        if frames[0][2][-4:] == FAST:
            return frames if headed else self.fast.ingest_many(frames)
        replies = [frame[2] for frame in frames]
        if _FAST_THEN in b" ".join(replies) + b" ":
            return frames
        subjects, payloads = [frame[1] for frame in frames], [frame[4] for frame in frames]
        names: Sequence[bytes] = ()
        if headed:
            right, names = self._right(subjects, blocks)
            if not right:
                return frames
            subjects, payloads, blocks = subjects[:right], payloads[:right], blocks[:right]
        first = self.store.last_seq + 1
        staged = self.staging.stage_many(subjects, payloads, blocks if headed else ())
        if names and staged:
            self._stream.window.add_many(names[:staged], first, self._steady_ns())
        numbered = zip(range(first, first + staged), replies, strict=False)
        if b"" in replies:
            self._acks.waiting += [(number, reply) for number, reply in numbered if reply]
        else:
            self._acks.waiting += numbered
        return frames[staged:]

    def _right(
        self, subjects: Sequence[bytes], blocks: Sequence[bytes]
    ) -> tuple[int, Sequence[bytes]]:
        """How many of these at the front have headers that are right at a glance, and the ids of those.

        All with an id are, or none; of those that say a last sequence, those before the first that is
        wrong.
        """
        if max(map(len, blocks)) > HEADER_BYTES_MAX:
            return 0, ()
        names = sole_message_ids(blocks)
        if names is not None:
            is_new = not names or self._stream.window.are_new(names, self._steady_ns())
            return (len(blocks) if is_new else 0), names
        expected = sole_expectations(blocks)
        if expected is None:
            expected, last = sole_places(blocks) or [], self.store.last_seq
            return _equal(expected, list(range(last, last + len(expected)))), ()
        if not is_literal(b".".join(subjects)):  # one is a pattern: it asks about many
            return 0, ()
        if len(set(subjects)) != len(subjects):
            subjects = subjects[: _distinct(subjects)]
        try:
            return _equal(expected, self.store.last_of_each(subjects)), ()
        except StoreReadError:
            return 0, ()

    def ingest_run(self, run: PublishRun, origin: Origin | None) -> Sequence[Frame]:
        """``ingest_many`` for the frames of a run; if all are staged, one answer is for all."""
        if not self.staging.is_plain:
            return run.frames
        first = self.store.last_seq + 1
        staged = self.staging.stage_many((run.subject,), run.payloads)
        if staged == len(run.payloads):
            self._acks.waiting.append((self.store.last_seq, run.reply))
            return ()
        frames = run.frames
        replies = [frame[2] for frame in frames[:staged]]
        self._acks.waiting += zip(count_from(first), replies, strict=False)
        return frames[staged:]

    def _ingest_checked(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        try:
            headers = without_requester(headers)
            if self.config.no_ack:
                reply = b""
            if BATCH_MARK in headers:
                self.atomic.ingest(subject, reply, headers, payload)
                return
            sequence, arrival = self.publish(subject, headers, payload)
        except Refused as refusal:
            self.refuse(reply, refusal.error)
        except StoreError as error:
            self.refuse(reply, store_refusal(error))
        else:
            if arrival.duplicate_of:
                self._confirm_duplicate(sequence, reply)
            elif reply:
                self.confirm(sequence, reply, arrival.extra, arrival.purge)

    def publish(self, subject: bytes, headers: bytes, payload: bytes) -> tuple[int, Arrival]:
        """Check a message and stage it, unless it is a duplicate; the sequence it has, or had already.

        Raises Refused, StoreError.
        """
        staging = self.staging
        arrival = self.checks.admit(staging.renamed(subject), headers, payload, staging.time())
        if arrival.duplicate_of:
            return arrival.duplicate_of, arrival
        staging.check_quota(arrival.size)
        return staging.stage(arrival.subject, arrival.headers, arrival.payload, arrival), arrival

    # -- answers

    def refuse(self, reply: bytes, error: ErrorSpec) -> None:
        """Answer at once why something is not stored, if there is a ``reply``."""
        if reply:
            self._stream.context.bus.publish(reply, b"", b"", encode_pub_error(self.name, error))

    def confirm(
        self, sequence: int, reply: bytes, extra: bytes = b"", purge: Pending | None = None
    ) -> None:
        """Acknowledge with the next flush, or with the one that ends a ``purge``."""
        if purge is not None:
            purge.when_done(partial(self._purged, sequence, reply, extra))
            return
        if extra:
            self._acks.add(sequence, reply, extra)
        else:
            self._acks.waiting.append((sequence, reply))
        self._stream.context.barrier.want(self._acks)

    def _purged(self, sequence: int, reply: bytes, extra: bytes, error: Exception | None) -> None:
        if error is not None:
            self.refuse(reply, store_refusal(error))
        else:
            self.confirm(sequence, reply, extra)

    def _confirm_duplicate(self, sequence: int, reply: bytes) -> None:
        """Say where the first message is: at once if that is durable."""
        if not reply:
            return
        context = self._stream.context
        if sequence <= self.store.durable_seq:
            context.bus.publish(reply, b"", b"", self._acks.duplicate(sequence))
        else:
            self._acks.add_duplicate(sequence, reply)
            context.barrier.want(self._acks)
