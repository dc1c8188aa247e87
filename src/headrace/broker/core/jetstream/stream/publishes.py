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
from ..headers.published import sole_expectations, sole_message_id, sole_message_ids, sole_places
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
        staging = self.staging
        if headers or not staging.is_plain:
            self._ingest_checked(subject, reply, headers, payload)
            return
        try:
            sequence = staging.stage(subject, b"", payload)
        except StoreError as error:
            self.refuse(reply, store_refusal(error))
            return
        if reply:
            self._acks.waiting.append((sequence, reply))

    def ingest_many(self, frames: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Published messages: stage those that need no more than that; returns the others.

        That is so if their headers say nothing to the stream, or an id each, which must be new.
        """
        staging = self.staging
        if not staging.is_plain:
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
            if max(map(len, blocks)) > HEADER_BYTES_MAX:
                return frames
            names = sole_message_ids(blocks)
            if names is None:
                return self._ingest_expecting(frames, blocks)
            if names and not self._stream.window.are_new(names, self._steady_ns()):
                return frames
        first = self.store.last_seq + 1
        subjects, payloads = [frame[1] for frame in frames], [frame[4] for frame in frames]
        staged = staging.stage_many(subjects, payloads, blocks if headed else ())
        if names and staged:
            self._stream.window.add_many(names[:staged], first, self._steady_ns())
        numbered = zip(range(first, first + staged), replies, strict=False)
        if b"" in replies:
            self._acks.waiting += [(number, reply) for number, reply in numbered if reply]
        else:
            self._acks.waiting += numbered
        return frames[staged:]

    def _ingest_expecting(self, frames: Sequence[Frame], blocks: list[bytes]) -> Sequence[Frame]:
        """Stage messages that say which is the last of their subject, and nothing else to the stream.

        Those from the first on that is wrong, or of a subject that was there before it, are left.
        """
        expected = sole_expectations(blocks)
        if expected is None:
            return self._ingest_placed(frames, blocks)
        subjects = [frame[1] for frame in frames]
        if not is_literal(b".".join(subjects)):  # one is a pattern: it asks about many
            return frames
        if len(set(subjects)) != len(subjects):
            subjects = subjects[: _distinct(subjects)]
        try:
            lasts = self.store.last_of_each(subjects)
        except StoreReadError:
            return frames
        if lasts != expected[: len(lasts)]:
            right = next(at for at, last in enumerate(lasts) if last != expected[at])
            if not right:
                return frames
            subjects = subjects[:right]
        return self._stage_first(len(subjects), frames, blocks)

    def _ingest_placed(self, frames: Sequence[Frame], blocks: list[bytes]) -> Sequence[Frame]:
        """The same for those that say which is the last of the stream, up to the first that is wrong."""
        expected, last = sole_places(blocks), self.store.last_seq
        if expected is None or expected[0] != last:
            return frames
        pairs = enumerate(expected)
        right = next((at for at, each in pairs if each != last + at), len(expected))
        return self._stage_first(right, frames, blocks)

    def _stage_first(
        self, count: int, frames: Sequence[Frame], blocks: list[bytes]
    ) -> Sequence[Frame]:
        """Stage so many of these messages, which need no more than that; returns the others."""
        first = self.store.last_seq + 1
        subjects = [frame[1] for frame in frames[:count]]
        payloads = [frame[4] for frame in frames[:count]]
        staged = self.staging.stage_many(subjects, payloads, blocks[:count])
        numbered = zip(count_from(first), frames[:staged], strict=False)
        self._acks.waiting += [(number, frame[2]) for number, frame in numbered if frame[2]]
        return frames[staged:]

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
            if self.staging.is_plain and self._ingest_named(subject, reply, headers, payload):
                return
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

    def _ingest_named(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bool:
        """Stage a message of a plain stream whose headers say nothing to it, or a new id, or which is the
        last of its subject. Raises StoreError. False if it is another one.
        """
        staging, window = self.staging, self._stream.window
        if len(headers) > HEADER_BYTES_MAX:
            return False
        name = sole_message_id(headers)
        if name is None and not self._is_expected(subject, headers):
            return False
        if name and window.find(name, self._steady_ns()):
            return False
        sequence = staging.stage(subject, headers, payload)
        if name:
            window.add(name, sequence, self._steady_ns())
        if reply:
            self._acks.waiting.append((sequence, reply))
        return True

    def _is_expected(self, subject: bytes, headers: bytes) -> bool:
        """Whether headers say which is the last of the subject or stream, rightly, and nothing else."""
        expected = sole_expectations((headers,))
        if expected is None:
            return sole_places((headers,)) == [self.store.last_seq]
        if not is_literal(subject):
            return False
        return self.store.last_of_each((subject,)) == expected

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
