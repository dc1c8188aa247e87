"""A publish that is awaited: sent, answered by the stream, and sent again while a leader is elected."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...api import names
from ...api.base import DocumentError
from ...api.envelope import decode_pub_ack
from ...api.errors import Errors, is_leaderless
from ...api.messages import PubAck
from ...errors import (
    DisconnectedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    OutcomeUnknownError,
    ProtocolError,
    RequestTimeoutError,
    TimeoutUnknownError,
)
from ...wire.headers import header_value
from ..jetstream.calls import Api
from ..message import HeadersLike, Payload, payload_bytes
from ..net.leaders import (
    delivery_seconds,
    is_behind,
    is_unanswered,
    is_wrong_last,
    patiently,
)
from ..net.session import Session
from .headers import PublishOptions, with_options
from .stream_of_subject import BEHIND_MAX, Who, nobody_has, who_has

if TYPE_CHECKING:
    from ..spans import Spans

RETRIES: Final = 2

_MSG_ID: Final = names.MSG_ID.encode()

_decode_ack = msgspec.json.Decoder(PubAck).decode


def publish_awaited(
    api: Api,
    subject: str,
    payload: Payload,
    headers: HeadersLike,
    options: PublishOptions,
    timeout: float | None = None,
    delivery_timeout: float | None = None,
    retries: int = RETRIES,
) -> Coroutine[Any, Any, PubAck]:
    """``JetStream.publish``, where the arguments are described. Raises as it does, when it is awaited."""
    sent = _publish(api, subject, payload, headers, options, timeout, delivery_timeout, retries)
    spans = api.session.spans
    return sent if spans is None else _with_span(spans, subject, len(payload), sent)


async def _with_span(
    spans: Spans, subject: str, size: int, sent: Coroutine[Any, Any, PubAck]
) -> PubAck:
    with spans.publishing(subject, size) as stored:
        ack = await sent
        stored(ack)
        return ack


async def _publish(
    api: Api,
    subject: str,
    payload: Payload,
    headers: HeadersLike,
    options: PublishOptions,
    timeout: float | None,
    delivery_timeout: float | None,
    retries: int,
) -> PubAck:
    session = api.session
    session.check_subject(subject)
    if type(payload) is not bytes:
        payload = payload_bytes(payload)
    block = with_options(headers, options)
    if (trace := session.trace) is not None:
        block = trace(block)
    session.check_size(len(block) + len(payload))
    seconds = api.timeout if timeout is None else timeout
    try:
        return await ask_stream(session, subject, block, payload, seconds)
    except (NoRespondersError, JetStreamApiError, RequestTimeoutError, DisconnectedError) as error:
        failed: HeadraceError = error
    limit = delivery_seconds(session, delivery_timeout, api.delivery_timeout)
    expected = max(
        options.get("expected_last_sequence") or 0,
        options.get("expected_last_subject_sequence") or 0,
    )
    deduplicated = bool(options.get("msg_id"))
    again = PublishAgain(api, subject, retries, deduplicated=deduplicated, expected=expected)
    attempt = partial(ask_stream, session, subject, block, payload, seconds)
    return await patiently(session, limit, attempt, again.awaited, failed)


async def ask_stream(
    session: Session, subject: str, block: bytes, payload: bytes, seconds: float
) -> PubAck:
    """One attempt to have a message stored; ``block`` are its headers. Raises as ``JetStream.publish``."""
    try:
        answer = await session.requests.ask(subject, block, payload, seconds)
    except OutcomeUnknownError as error:
        safe = "with its msg_id" if header_value(block, _MSG_ID) else "had it a msg_id"
        raise type(error)(f"{error}; {safe}, sent again it is stored once") from None
    return _pub_ack(subject, answer[5])


def change_id(api: Api) -> str:
    """An id for a change of a bucket: in a cluster it may be sent again, and must be done once."""
    return api.session.nuid.next() if api.session.info.cluster else ""


class PublishAgain:
    """Decides whether an awaited publish that failed is sent again.

    Args:
        retries: how often, when it cannot be asked who has the subject; 0: never, for any reason.
        deduplicated: whether the stream drops it if it is there already.
        expected: the last sequence it expects, or 0.
    """

    def __init__(
        self, api: Api, subject: str, retries: int, *, deduplicated: bool, expected: int
    ) -> None:
        self._api = api
        self._expected = expected
        self._behind = 0
        self._subject = subject
        self._retries = retries
        self._deduplicated = deduplicated
        self._of = f"the stream of {subject!r}"

    async def awaited(self, error: HeadraceError) -> str:
        """What has no leader, in words; "" if there is no use in waiting.

        Raises:
            NoRespondersError: no stream has the subject.
            TimeoutUnknownError: it is not known whether what another one refused is stored.
        """
        if isinstance(error, NoRespondersError):
            return await self._who(error)
        if not self._retries:
            return ""
        session = self._api.session
        if is_behind(session, error, self._expected):
            self._behind += 1
            return self._of if self._behind <= BEHIND_MAX else ""
        if self._behind and not self._deduplicated and is_wrong_last(error):
            raise TimeoutUnknownError(
                f"a leader that was behind refused a message on {self._subject!r}, and the next leader did "
                f"({error}): it may be stored or not; with a msg_id it is known"
            ) from error
        unanswered = self._deduplicated and is_unanswered(session, error)
        again = unanswered or is_undecided(session, error) or is_leaderless(error)
        return self._of if again else ""

    async def _who(self, error: HeadraceError) -> str:
        if self._retries <= 0:
            raise nobody_has(self._subject) from None
        who, self._of = await who_has(self._api, self._subject)
        if who is Who.UNTOLD:
            self._retries -= 1
        elif who is Who.NOBODY:
            raise nobody_has(self._subject) from None
        return self._of


def is_undecided(session: Session, error: Exception) -> bool:
    """Whether a server of a cluster refused an expected sequence because another message of the subject is
    on its way to the stream: it may be the one that was sent before, and it may come to nothing."""
    constant = Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code
    return (
        bool(session.info.cluster)
        and isinstance(error, JetStreamApiError)
        and error.err_code == constant
    )


def _pub_ack(subject: str, data: bytes) -> PubAck:
    """Read a publish acknowledgement; the short way when it is plainly one.

    Raises JetStreamApiError: the stream refused; ProtocolError: no stream said this.
    """
    try:
        ack = _decode_ack(data) if data.startswith(b'{"stream"') else decode_pub_ack(data)
        if ack.stream and ack.seq >= 0:
            return ack
    except (DocumentError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # it is said below what came
    raise ProtocolError(
        f"the answer to a publish on {subject!r} is no stream's but {data[:64]!r}: somebody else answers "
        "there too, so it is not known to be stored"
    )
