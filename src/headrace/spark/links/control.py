"""The JetStream calls that the source needs, over one blocking link."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ...api import base
from ...api.base import Document
from ...api.consumers import ConsumerConfig, ConsumerInfo, CreateConsumerRequest, ResetRequest
from ...api.envelope import read_answer
from ...api.errors import Errors
from ...api.messages import (
    GetMessageRequest,
    GetMessageResponse,
    StoredMessageDocument,
    SuccessResponse,
)
from ...api.streams import StreamConfig, StreamInfo, StreamInfoRequest, StreamNamesResponse
from ...api.times import parse_time
from ...errors import (
    AuthorizationError,
    ConfigurationError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from ...identity import MessageIdentity, Sameness, compare
from ..offsets import Offset, StreamHead
from .link import Link, Reply
from .outages import FIRST_CONNECT_S, ServerPatience, may_pass

D = TypeVar("D", bound=Document)

SETTLE_S: Final = 10.0  # a leader has caught up by then
REPLICATED: Final = 2
NAMES_SHOWN: Final = 10  # of the streams that exist, when one does not

_STREAM_NOT_FOUND: Final = Errors.STREAM_NOT_FOUND.err_code
_CONSUMER_NOT_FOUND: Final = Errors.CONSUMER_NOT_FOUND.err_code
_MAX_CONSUMERS: Final = Errors.MAX_CONSUMERS.err_code
_MESSAGE_NOT_FOUND: Final = Errors.NO_MESSAGE_FOUND.err_code
_INVALID_RESET: Final = Errors.CONSUMER_INVALID_RESET.err_code
_RESET_LEVEL: Final = 4  # the API level from which CONSUMER.RESET exists (nats-server 2.14)


class _BehindError(HeadraceError):
    """A server told an end of the stream that is before what was read."""


def settled_head(
    control: Control, offset: Offset, patience: ServerPatience
) -> tuple[StreamHead, StreamConfig]:
    """The head, asked for again while a new leader may not have caught up with ``offset``.

    A server that has just become the leader of a replicated stream may answer before it has applied all that
    is committed. That must not pass for a stream restored from an older copy.
    """
    fresh = patience.fresh(SETTLE_S, f"the leader of stream {control.stream!r} to catch up")
    while True:
        head, config = control.head()
        created_then = offset.epoch in ("", head.epoch)
        if offset.seq <= head.last_seq or config.num_replicas < REPLICATED or not created_then:
            return head, config
        try:
            fresh.pause(_BehindError(f"it ends at {head.last_seq}, {offset.seq} was read"))
        except _BehindError:
            return head, config


class StreamMissingError(ConfigurationError):
    """The server has no stream of this name."""


class Control:
    """One stream's API on one link."""

    def __init__(self, link: Link, stream: str) -> None:
        self.link = link
        self.stream = stream
        self._resets = link.info.api_lvl >= _RESET_LEVEL
        self._may_get = True

    def stream_info(self) -> StreamInfo:
        """The stream's configuration and state.

        Raises:
            StreamMissingError: the stream does not exist.
            ConfigurationError: the server has no JetStream.
        """
        try:
            return self._call(("STREAM", "INFO", self.stream), b"", StreamInfo)
        except JetStreamApiError as error:
            if error.err_code == _STREAM_NOT_FOUND:
                raise StreamMissingError(
                    f"jetstream source: the server has no stream {self.stream!r}{self._others()}"
                ) from error
            raise
        except (NoRespondersError, RequestTimeoutError) as error:
            if not self.link.info.jetstream:
                raise ConfigurationError(
                    "jetstream source: the server runs without JetStream; start it with JetStream"
                ) from error
            raise

    def has_subject(self, pattern: str) -> bool:
        """Whether a message is stored on a subject that matches."""
        body = base.encode(StreamInfoRequest(subjects_filter=pattern))
        return bool(self._call(("STREAM", "INFO", self.stream), body, StreamInfo).state.subjects)

    def _others(self) -> str:
        """What streams there are, those with similar names first; "" where that may not be asked."""
        try:
            names = self._call(("STREAM", "NAMES"), b"", StreamNamesResponse).streams
        except HeadraceError:
            return ""  # what matters has been said: the stream is missing
        if not names:
            return "; it has none at all"
        near = difflib.get_close_matches(self.stream, names, n=NAMES_SHOWN, cutoff=0.6)
        shown = [*near, *(name for name in names if name not in near)][:NAMES_SHOWN]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        return f"; there are: {', '.join(shown)}{more}"

    def head(self) -> tuple[StreamHead, StreamConfig]:
        """The stream head for planning, and the configuration."""
        info = self.stream_info()
        state = info.state
        head = StreamHead(
            info.created,
            state.first_seq,
            state.last_seq,
            state.messages,
            state.bytes,
            first_ns=max(0, parse_time(state.first_ts)),
            now_ns=parse_time(info.ts) if info.ts else 0,
            last_ns=max(0, parse_time(state.last_ts)) if state.messages else 0,
        )
        return head, info.config

    def sameness(self, offset: Offset, head: StreamHead) -> Sameness:
        """Whether the stream has the message that was read last at an offset, by its time.

        Asks the server unless the head tells; of a user who may not get messages nothing can be told.
        """
        remembered = offset.identity(self.stream)
        last = MessageIdentity(self.stream, head.last_seq, head.last_ns)
        if offset.stored_ns and remembered == last:
            return Sameness.SAME
        found = None
        if offset.stored_ns and 0 < offset.seq <= head.last_seq and head.messages:
            found = self._identity(offset.seq)
        return compare(remembered, found, last)

    def stored_ns(self, sequence: int, head: StreamHead) -> int:
        """When this very message was stored, in ns since the epoch; 0 if none has the sequence."""
        if sequence <= 0 or not head.messages:
            return 0
        if sequence == head.last_seq:
            return head.last_ns
        found = self._identity(sequence)
        return found.timestamp_ns if found is not None and found.sequence == sequence else 0

    def place(self, offset: Offset, head: StreamHead, same: Sameness) -> int:
        """Up to which sequence the stream that is there was read by whoever stands at an offset.

        Times never go back within a stream: what was stored after the message read last was not read.
        """
        if same is Sameness.SAME or (same is Sameness.GONE and not offset.stored_ns):
            return offset.seq
        by_time = self._last_stored(offset.stored_ns, head)
        return by_time if same is Sameness.OTHER else min(offset.seq, by_time)

    def _identity(self, sequence: int) -> MessageIdentity | None:
        """The first message at a sequence or after it, as the leader sees it."""
        if not self._may_get:
            return None
        try:
            message = self._next(sequence, ">")
        except AuthorizationError:
            self._may_get = False
            return None
        if message is None:
            return None
        return MessageIdentity(self.stream, message.seq, parse_time(message.time))

    def _last_stored(self, at_ns: int, head: StreamHead) -> int:
        """A sequence up to which all was stored at or before a time, and all after it later."""
        low, high = max(0, head.first_seq - 1), head.last_seq
        while low < high:
            middle = (low + high + 1) // 2
            found = self._next(middle, ">")
            if found is not None and parse_time(found.time) <= at_ns:
                low = found.seq
            else:
                high = middle - 1
        return low

    def next_stored(self, sequence: int, pattern: str = ">") -> int:
        """The first sequence from ``sequence`` on whose subject matches, as the leader sees it; 0 if there
        is none.
        """
        message = self._next(sequence, pattern)
        return message.seq if message else 0

    def next_time(self, sequence: int, pattern: str = ">") -> int:
        """When the message of ``next_stored`` was stored, in ns since the epoch; 0 if there is none."""
        message = self._next(sequence, pattern)
        return parse_time(message.time) if message else 0

    def _next(self, sequence: int, pattern: str) -> StoredMessageDocument | None:
        request = GetMessageRequest(seq=sequence, next_by_subj=pattern)
        try:
            answer = self._call(
                ("STREAM", "MSG", "GET", self.stream), base.encode(request), GetMessageResponse
            )
        except JetStreamApiError as error:
            if error.err_code == _MESSAGE_NOT_FOUND:
                return None
            if error.err_code == _STREAM_NOT_FOUND:
                raise StreamMissingError(
                    f"jetstream source: the server has no stream {self.stream!r} any more"
                ) from error
            raise
        return answer.message

    def create_consumer(self, config: ConsumerConfig, action: str = "create") -> ConsumerInfo:
        """Create a consumer, or update one; an ephemeral one if ``config`` has no name.

        Raises:
            ConfigurationError: the stream allows no more consumers.
        """
        body = base.encode(
            CreateConsumerRequest(stream_name=self.stream, config=config, action=action)
        )
        name = config.durable_name or config.name
        tokens = ("CONSUMER", "CREATE", self.stream, *([name] if name else []))
        subject = self.link.api(*tokens)
        return self._created(subject, self.link.request(subject, body))

    def _created(self, subject: str, answer: Reply) -> ConsumerInfo:
        try:
            return read_answer(subject, answer.payload, ConsumerInfo)
        except JetStreamApiError as error:
            if error.err_code != _MAX_CONSUMERS:
                raise
            raise ConfigurationError(
                f"jetstream source: stream {self.stream!r} allows no more consumers: a query needs one for "
                "each task, one or two for moments while it plans and waits, and one for 'durable'; raise "
                "max_consumers of the stream, or of the account"
            ) from error

    def create_ephemeral(self, **config: Any) -> ConsumerInfo:
        """Create a consumer in memory that wants no acks; the server removes it when it is not used."""
        return self.create_consumer(
            ConsumerConfig(ack_policy="none", mem_storage=True, num_replicas=1, **config)
        )

    def count(self, lo: int, hi: int, subjects: tuple[str, ...] = ()) -> int:
        """How many messages of ``(lo, hi]`` match one of the ``subjects`` (none: all).

        Consumers that deliver nothing count it; both ends are counted together, as the stream may grow. In a
        cluster they may be on a server that lags, so a count may be too low: it is good for sizes, but only
        ``next_stored`` tells whether there is anything.
        """
        one = subjects[0] if len(subjects) == 1 else ""
        bodies = [
            base.encode(
                CreateConsumerRequest(
                    stream_name=self.stream,
                    action="create",
                    config=ConsumerConfig(
                        ack_policy="none",
                        mem_storage=True,
                        num_replicas=1,
                        deliver_policy="by_start_sequence",
                        opt_start_seq=after + 1,
                        filter_subject=one,
                        filter_subjects=() if one else subjects,
                        inactive_threshold=5.0,
                        description="headrace: counts messages for a Spark query",
                    ),
                )
            )
            for after in (lo, hi)
        ]
        create = self.link.api("CONSUMER", "CREATE", self.stream)
        answers = self.link.request_many([(create, body) for body in bodies])
        infos = [self._created(create, answer) for answer in answers]
        self.link.request_many(
            [(self.link.api("CONSUMER", "DELETE", self.stream, info.name), b"") for info in infos]
        )
        return max(0, infos[0].num_pending - infos[1].num_pending)

    def consumer_info(self, name: str) -> ConsumerInfo | None:
        """The consumer, or None if none has this name."""
        try:
            return self._call(("CONSUMER", "INFO", self.stream, name), b"", ConsumerInfo)
        except JetStreamApiError as error:
            if error.err_code == _CONSUMER_NOT_FOUND:
                return None
            raise

    def delete_consumer(self, name: str) -> None:
        """Delete a consumer; it is no error if the consumer does not exist."""
        try:
            self._call(("CONSUMER", "DELETE", self.stream, name), b"", SuccessResponse)
        except JetStreamApiError as error:
            if error.err_code != _CONSUMER_NOT_FOUND:
                raise

    def reset_consumer(self, name: str, next_seq: int) -> bool:
        """Make ``next_seq`` the next sequence of a consumer; False if the server does not support or allow
        it.
        """
        if not self._resets:
            return False
        try:
            self._call(
                ("CONSUMER", "RESET", self.stream, name),
                base.encode(ResetRequest(seq=next_seq)),
                ConsumerInfo,
            )
        except (RequestTimeoutError, NoRespondersError):
            # Servers do not answer unknown API calls, nor a reset of a missing consumer.
            self._resets = False
            return False
        except JetStreamApiError as error:
            if error.err_code != _INVALID_RESET:
                raise
            return False  # before the sequence the consumer was created for
        return True

    def _call(self, tokens: tuple[str, ...], body: bytes, kind: type[D]) -> D:
        subject = self.link.api(*tokens)
        return read_answer(subject, self.link.request(subject, body).payload, kind)


T = TypeVar("T")


class Calls:
    """Keeps the connection of a query's process.

    Args:
        stream: whose API is called.
        connect: opens a link.
        reconnect_timeout_s: how long to wait for a server that was there and is away.
        patience: makes the pauses between attempts.
        stays: whether to wait out an error of a server that was there, with the connection kept.
    """

    def __init__(
        self,
        stream: str,
        connect: Callable[[], Link],
        reconnect_timeout_s: float,
        patience: Callable[[float, str], ServerPatience] = ServerPatience,
        stays: Callable[[HeadraceError], bool] = lambda error: False,
    ) -> None:
        self._stream = stream
        self._connect = connect
        self._reconnect_timeout_s = reconnect_timeout_s
        self._patience = patience
        self._stays = stays
        self._control: Control | None = None
        self._was_there = False

    def __call__(self, call: Callable[[Control], T]) -> T:
        """The answer of ``call``; it may be called several times.

        Raises:
            HeadraceError: what ``call`` raised, if waiting would not help or was long enough.
        """
        timeout_s = self._reconnect_timeout_s
        if not self._was_there:
            timeout_s = min(timeout_s, FIRST_CONNECT_S)
        patience = self._patience(timeout_s, f"stream {self._stream!r}")
        while True:
            try:
                if self._control is None or self._control.link.closed:
                    self._control = Control(self._connect(), self._stream)
                answer = call(self._control)
                self._was_there = True
                return answer
            except HeadraceError as error:
                stays = self._was_there and self._stays(error)
                if not (stays or may_pass(error)):
                    raise
                if not stays:
                    self.close()
                patience.pause(error)

    def close(self) -> None:
        """Close the connection."""
        if self._control is not None:
            self._control.link.close()
