"""Messages made by a test, to call a handler with: without a server, and they remember what is answered."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from ..client.jetstream.message import JetStreamMessage
from ..client.message import HeadersLike, Payload, header_block, payload_bytes
from ..errors import ConfigurationError
from ..groups.member.lease import Generation, Lease
from ..groups.message import GroupMessage
from ..handling.callbacks import Queued
from ..subjects import is_literal, is_valid_subject

__all__ = ["MadeMessage", "made_group_message", "made_message"]

_QUEUED: Final = Queued()


class MadeMessage(JetStreamMessage, eq=False):
    """A message that no server delivered. ``answers`` has what was answered, as it was called: ``"ack()"``,
    ``"nak(10)"``, ``"term('no such customer')"``, ``"in_progress()"``, ``"ack_sync()"``."""

    answers: list[str] = []  # noqa: RUF012 (msgspec copies it)

    @property
    def is_of_former_server(self) -> bool:
        """Of no server."""
        return False

    def ack(self) -> Queued:
        """Noted."""
        return self._note("ack()", answered=True)

    def nak(self, delay: float | None = None) -> Queued:
        """Noted."""
        return self._note(f"nak({delay:g})" if delay else "nak()", answered="nak")

    def term(self, reason: str = "") -> Queued:
        """Noted."""
        return self._note(f"term({reason!r})" if reason else "term()", answered="term")

    def in_progress(self) -> Queued:
        """Noted."""
        return self._note("in_progress()", answered=False)

    async def respond(self, payload: Payload = b"", *, headers: HeadersLike = None) -> None:
        """Noted, as what it is: an answer that a server would not understand."""
        self._note(f"respond({payload_bytes(payload)!r})", answered=False)

    async def _confirm(self, timeout: float | None, *, must_be_current: bool) -> None:
        self._note("ack_sync()", answered=True)

    def _note(self, answer: str, *, answered: bool | str) -> Queued:
        if not self._answered:  # what comes after a final answer is not sent
            self.answers.append(answer)
            self._answered = answered
        return _QUEUED


def made_message(
    payload: object = b"",
    *,
    subject: str = "test",
    headers: HeadersLike = None,
    stream: str = "TEST",
    consumer: str = "test",
    sequence: int = 1,
    delivered: int = 1,
    timestamp_ns: int = 1_700_000_000_000_000_000,
) -> MadeMessage:
    """A message as a consumer delivers it, to call a handler with.

    ::

        message = made_message({"customer": "eve"}, subject="orders.1")
        await bill(message)
        assert message.answers == ["ack()"]

    Args:
        payload: bytes, or text, or what msgspec writes as JSON.
        subject: what it was published to.
        sequence, delivered, timestamp_ns, stream, consumer: what its ``metadata`` say.

    Raises:
        ConfigurationError: the payload or the subject cannot be that of a message.
    """
    name = subject.encode()
    if not is_valid_subject(name) or not is_literal(name):
        raise ConfigurationError(f"subject is {subject!r}; accepted is a subject without wildcards")
    reply = (
        f"$JS.ACK.{stream}.{consumer}.{delivered}.{sequence}.{sequence}.{timestamp_ns}.0".encode()
    )
    frame = (b"", name, b"0", reply, header_block(headers), _body(payload))
    return MadeMessage(cast("Any", None), frame)


def made_group_message(
    payload: object = b"",
    *,
    subject: str = "test",
    headers: HeadersLike = None,
    partition: int = 0,
    generation: int = 1,
    stream: str = "TEST",
    consumer: str = "test",
    sequence: int = 1,
    delivered: int = 1,
    timestamp_ns: int = 1_700_000_000_000_000_000,
) -> GroupMessage:
    """A message as a member of a group handles it, which owns its partition. See ``made_message``."""
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
        raise ConfigurationError(f"partition is {partition!r}; accepted is a number from 0")
    message = made_message(
        payload,
        subject=f"{partition}.{subject}",
        headers=headers,
        stream=stream,
        consumer=consumer,
        sequence=sequence,
        delivered=delivered,
        timestamp_ns=timestamp_ns,
    )
    endless = Lease(float("inf"), 0.0)
    return GroupMessage(message, Generation(generation, (partition,), endless, lambda: 0.0))


def _body(payload: object) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return payload_bytes(payload)
    try:
        return msgspec.json.encode(payload)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"payload is {payload!r:.100}; accepted are bytes, text, and what is written as JSON: {error}"
        ) from error
