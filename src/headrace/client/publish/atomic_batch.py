"""Atomic batches: several messages that a stream stores together, or not at all."""

from __future__ import annotations

import asyncio
from typing import Final, Self, Unpack

from ...api import names
from ...api.base import DocumentError
from ...api.envelope import decode_pub_ack
from ...api.errors import is_leaderless
from ...api.messages import PubAck
from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedError,
    DisconnectedUnknownError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
    TimeoutUnknownError,
)
from ...wire.encode import pub
from ...wire.frames import Frame
from ...wire.headers import add_header, header_value, says_nobody
from ..jetstream.calls import Api
from ..jetstream.stored_message import if_found
from ..jetstream.streams import Streams
from ..message import HeadersLike, Payload, payload_bytes
from ..net.leaders import is_behind, is_unanswered, patiently
from ..net.outbox import Slip, check_line, reply_bytes
from .headers import PublishOptions, with_options
from .stream_of_subject import BEHIND_MAX, Who, who_has

API_LEVEL_MIN: Final = 2  # nats-server 2.12
_COMMIT: Final = (names.BATCH_COMMIT.encode(), b"1")
_COMMIT_BYTES: Final = len(b"%b: %b\r\n" % _COMMIT)
_INCOMPLETE: Final = 10176  # what follows a refused message
_DOUBTS_MAX: Final = 3  # who led before may say for a moment that nothing was stored
_EXPECTATIONS: Final = (names.EXPECTED_LAST_SEQ.encode(), names.EXPECTED_LAST_SUBJECT_SEQ.encode())
_GUARDS: Final = frozenset(
    {"msg_id", "expected_last_sequence", "expected_last_subject_sequence", "expected_last_msg_id"}
)


class BatchRefusedError(JetStreamApiError):
    """The stream refused a batch: nothing of it was stored.

    Attributes:
        index: the message the stream objected to, from 0; None when it objects to the whole.
        code, err_code, description: the stream's reason, as in every JetStreamApiError.
    """

    def __init__(self, reason: JetStreamApiError, index: int | None, subject: str) -> None:
        super().__init__(reason.code, reason.err_code, reason.description)
        self.index = index
        self._where = "" if index is None else f"message {index} on {subject!r}: "

    def __str__(self) -> str:
        return f"nothing of the batch was stored: {self._where}{super().__str__()}"


class _NobodyError(NoRespondersError):
    """Nobody took a message of a batch."""

    def __init__(self, subject: str, number: int) -> None:
        super().__init__(f"no stream has the subject {subject!r} of message {number}")
        self.subject = subject


class AtomicBatch:
    """Messages that are stored together, one after the other, or not at all. Made by ``js.batch()``.

    ::

        async with js.batch() as batch:
            batch.add("accounts.a", b"-5")
            batch.add("accounts.b", b"+5")
        print(batch.ack.seq)

    Messages are held in memory and sent by ``commit``; the end of the block commits what was not
    committed, unless the block failed. All of them belong to one stream, which must have
    ``allow_atomic``; a server takes 1000 messages in a batch unless it is configured otherwise.

    Attributes:
        ack: the stream's acknowledgement once committed, else None. ``seq`` is the last message's
            sequence, ``count`` how many there are.
    """

    def __init__(self, api: Api, timeout: float) -> None:
        self._api = api
        self._streams = Streams(api)
        self._session = api.session
        self._timeout = timeout
        self._messages: list[tuple[str, bytes, bytes]] = []  # subject, headers, payload
        self._id = self._session.nuid.next()
        self._answer: asyncio.Future[PubAck] | None = None
        self._refused: Exception | None = None
        self._former: list[str] = []  # the ids of attempts that may have been stored
        self._unanswered = False  # whether one of these had no answer at all
        self._under_way = False  # whether this one was sent, and not answered yet
        self._slip: Slip | None = None
        self._behind = 0  # how often one refused it who knew less than we do
        self._doubts = 0  # how often it was refused for good, but may be what was stored
        self._guarded = False  # whether the stream refuses what it has already
        self._prefix = b""
        self._over = False
        self.ack: PubAck | None = None

    def __repr__(self) -> str:
        return f"<AtomicBatch of {len(self)} messages ack={self.ack}>"

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def first_sequence(self) -> int:
        """The sequence of the first message once committed, else 0; the others follow it."""
        return self.ack.seq - self.ack.count + 1 if self.ack is not None else 0

    def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike = None,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Add a message and return its number, from 0. Nothing is sent yet.

        Args:
            options: what is asked of the stream, as for ``JetStream.publish``; expectations are compared
                with the stream as it is before the batch. ``expected_last_sequence`` only with the
                first message; ``expected_last_msg_id`` not at all.

        Raises:
            InvalidSubjectError, LimitExceededError: the message cannot be sent.
            ConfigurationError: the batch was committed or discarded.
        """
        self._check_open()
        number = len(self._messages)
        if number and options.get("expected_last_sequence") is not None:
            raise ConfigurationError(
                "expected_last_sequence goes with a batch's first message only"
            )
        self._session.check_subject(subject)
        check_line(subject.encode(), reply_bytes(self._session.options.inbox_prefix))
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = with_options(
            headers, options, (names.BATCH_ID, self._id), (names.BATCH_SEQUENCE, str(number + 1))
        )
        if (trace := self._session.trace) is not None:
            block = trace(block)
        self._session.check_size(len(block) + _COMMIT_BYTES + len(payload))
        self._messages.append((subject, block, payload))
        self._guarded = self._guarded or not _GUARDS.isdisjoint(options)
        return number

    async def commit(self) -> PubAck:
        """Send the batch, and return once the stream has all of it.

        In a cluster a batch goes with the leader that was collecting it. It is sent again, from its
        beginning, until ``delivery_timeout`` if nothing of it can be stored: a message of it was refused
        for want of a leader, or is missing. But a leader that was frozen may wake up and refuse what the
        next one stores, so the stream is asked first whether the batch is there; and so it is if the
        answer alone is missing. If the batch is then not seen, it is sent again only if one of its
        messages has a ``msg_id`` or an ``expected_last_…``, by which the stream refuses what it has
        already.

        Raises:
            BatchRefusedError: the stream refused; nothing was stored.
            NoRespondersError: no stream has one of the subjects, or it had no leader for all that time;
                nothing was stored.
            ConfigurationError: nothing was added, or the server is too old for batches.
            OutcomeUnknownError, ConnectionClosedError: no answer came; all of it may be stored, or nothing.
                The former is a RequestTimeoutError or a DisconnectedError, too.
            RequestTimeoutError, DisconnectedError: it was not sent.
        """
        self._check_open()
        if not self._messages:
            raise ConfigurationError("nothing was added to the batch; there is nothing to commit")
        session = self._session
        session.raise_if_unusable()
        self._over = True
        await self._check_server()
        self.ack = await patiently(session, self._api.delivery_timeout, self._send, self._awaited)
        return self.ack

    async def _send(self) -> PubAck:
        """One attempt. Raises as ``commit``."""
        self._under_way = False
        if self._former:
            found = await self._find()
            if found is not None:
                return found
        session = self._session
        self._refused = None
        self._answer = session.loop.create_future()
        self._prefix = session.new_inbox().encode() + b"."
        route = session.open_route(self._prefix + b"*", self._receive)
        session.observers[self] = None
        try:
            self._slip = session.send_once(self._commands())
            self._under_way = True
            async with asyncio.timeout(self._timeout):
                return await self._answer
        except TimeoutError:
            if self._refused is not None:
                raise self._refused from None  # so the rest cannot have been stored
            raise self._unanswered_in_time() from None
        except BatchRefusedError as error:
            self._under_way = False
            if not session.info.cluster or is_leaderless(error) or error.err_code == _INCOMPLETE:
                raise
            # The former leader may still answer, and refuse what the present one has stored.
            found = await self._find()
            if found is not None:
                return found
            if self._unanswered:
                raise self._undecided(error) from error
            raise
        finally:
            session.outbox.withdraw(self._slip)
            session.observers.pop(self, None)
            session.close_route(route)

    def _unanswered_in_time(self) -> RequestTimeoutError:
        """What is raised when the time is over; what was not sent is withdrawn."""
        late = f"no answer to a batch of {len(self)} messages within {self._timeout} s"
        if self._session.outbox.withdraw(self._slip):
            self._under_way = False
            return RequestTimeoutError(
                f"{late}: it was not sent, and will not be; {self._session.where}"
            )
        self._session.doubt.begin()
        return TimeoutUnknownError(f"{late}; all of it may be stored, or nothing")

    # Sending it again

    async def _awaited(self, error: HeadraceError) -> str:
        """What has no leader, in words; "" if the batch must not be sent again, or there is no use."""
        subject = self._messages[0][0]
        in_cluster = bool(self._session.info.cluster)
        of = f"the stream of {subject!r}"
        if isinstance(error, _NobodyError):
            who, of = await who_has(self._api, error.subject)
            if who not in (Who.STREAM, Who.NOT_NOW):
                return ""
        elif is_unanswered(self._session, error):
            self._unanswered = self._unanswered or self._under_way
            if self._under_way and not self._guarded and await self._find() is None:
                return ""
        elif self._behind < BEHIND_MAX and is_behind(self._session, error, self._expected(error)):
            self._behind += 1
        elif is_leaderless(error):
            pass  # whoever leads may take it
        elif not in_cluster or not isinstance(error, BatchRefusedError):
            return ""
        elif error.err_code != _INCOMPLETE:
            if not self._former or self._doubts == _DOUBTS_MAX:
                return ""
            self._doubts += 1
        self._rename()
        return of

    def _expected(self, error: HeadraceError) -> int:
        """The last sequence that the refused message expected, or 0."""
        index = getattr(error, "index", None) or 0
        block = self._messages[index][1]
        found = (header_value(block, name) for name in _EXPECTATIONS)
        return max((int(value) for value in found if value), default=0)

    def _rename(self) -> None:
        """Another id: of the old one somebody may know something. Even a refused one may be stored: while a
        leader that was frozen wakes up, two of them receive each message, and the wrong one may answer."""
        self._former.append(self._id)
        old, self._id = self._id.encode(), self._session.nuid.next()
        new = self._id.encode()
        self._messages = [
            (subject, block.replace(old, new, 1), payload)
            for subject, block, payload in self._messages
        ]

    async def _find(self) -> PubAck | None:
        """What the stream would have answered, if an attempt is what it stored last on the subject of the
        batch's last message."""
        subject = self._messages[-1][0]
        async for name in self._streams.names(subject=subject):
            stream = await self._streams.get(name)
            last = await if_found(stream.get_last_message(subject))
            if last is None:
                continue
            batch = last.headers.get(names.BATCH_ID) or ""
            if batch in (*self._former, self._id) and last.headers.get(names.BATCH_COMMIT):
                return PubAck(stream=name, seq=last.sequence, batch=batch, count=len(self))
        return None

    def _undecided(self, error: BatchRefusedError) -> HeadraceError:
        """A refusal after an attempt without an answer may be about that attempt."""
        return TimeoutUnknownError(
            f"an attempt to store a batch of {len(self)} messages had no answer, and the next was "
            f"refused ({error.description}): all of it may be stored, or nothing"
        )

    def discard(self) -> None:
        """Drop what was added; nothing of it was sent. A batch that was committed stays so."""
        self._over = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        """Commit, unless the block failed or that was done, or nothing was added."""
        if error is None and not self._over and self._messages:
            await self.commit()
        self._over = True

    def _check_open(self) -> None:
        if self._over:
            raise ConfigurationError("the batch was committed or discarded; begin another one")

    async def _check_server(self) -> None:
        """A server that knows nothing of batches would store the messages one by one.

        It knows of them if its API level says so, or if it speaks of streams that have them.
        """
        info = self._session.info
        if info.api_lvl >= API_LEVEL_MIN or self._api.batches_at == info.server_id:
            return
        async for stream in self._streams.infos(subject=self._messages[0][0]):
            if stream.config.allow_atomic:
                self._api.batches_at = info.server_id
                return
            raise ConfigurationError(
                f"stream {stream.config.name!r} has no atomic batches, and the server (version "
                f"{info.version}, API level {info.api_lvl}) may not know of them; they need a stream "
                f"with allow_atomic, which nats-server has from 2.12 on"
            )
        raise NoRespondersError(f"no stream has the subject {self._messages[0][0]!r} of message 0")

    def _commands(self) -> bytes:
        """Each message asks for an answer, so that a refusal says which it was."""
        out = []
        last = len(self._messages) - 1
        for number, (subject, block, payload) in enumerate(self._messages):
            if number == last:
                block = add_header(block, *_COMMIT)
            out.append(pub(subject.encode(), b"%b%d" % (self._prefix, number), block, payload))
        return b"".join(out)

    # Answers: nothing in them for what was taken, an error, and in the end an acknowledgement

    def _receive(self, frames: list[Frame]) -> None:
        answer, last = self._answer, len(self._messages) - 1
        assert answer is not None
        for frame in frames:
            if answer.done():
                return
            digits = frame[1][len(self._prefix) :]
            if not digits.isdigit() or (number := int(digits)) > last:
                continue  # not an answer to one of these messages
            try:
                ack = self._read(number, frame)
            except (JetStreamApiError, NoRespondersError, ProtocolError) as error:
                if self._refused is None:
                    self._refused = error
            else:
                if number == last and ack is not None:
                    answer.set_result(ack)  # it is stored, whoever else refused a message of it
                    return
            if number == last and self._refused is not None:
                answer.set_exception(self._refused)

    def _read(self, number: int, frame: Frame) -> PubAck | None:
        subject = self._messages[number][0]
        is_last = number == len(self._messages) - 1
        headers: bytes = frame[4]
        payload: bytes = frame[5]
        if says_nobody(headers, payload):
            raise _NobodyError(subject, number)
        if not payload and not is_last:
            return None
        try:
            ack = decode_pub_ack(payload)
        except JetStreamApiError as error:
            whole = is_last and (len(self) > 1 or error.err_code == _INCOMPLETE)
            raise BatchRefusedError(error, None if whole else number, subject) from None
        except DocumentError as error:
            raise ProtocolError(f"the answer to a batch is not understood: {error}") from None
        if not is_last or ack.batch != self._id:
            raise ProtocolError(f"message {number} was stored on its own, not as part of a batch")
        return ack

    # The connection

    def connection_lost(self) -> None:
        """The answer is lost."""
        lost: HeadraceError
        if self._session.outbox.withdraw(self._slip):
            self._under_way = False
            lost = DisconnectedError("the connection was lost before the batch was sent")
        else:
            lost = DisconnectedUnknownError(
                "the connection was lost before the batch was acknowledged; all of it may be stored, or "
                "nothing"
            )
        self._fail(self._refused or lost)

    def connection_restored(self) -> None:
        """Do nothing: the waiting commit has failed already."""

    def connection_closed(self, reason: Exception) -> None:
        """The connection is over for good: who waits for the answer is told."""
        self._fail(ConnectionClosedError(str(reason)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
