"""Messages that cannot be put into rows, and what is done with them (``onBadMessage``).

Anybody who may publish can send a subject that is not text, or a header line without a colon. Such a message
stays in the stream, so a query that fails on it fails on it for ever, unless it is told to go on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...errors import HeadraceError
from ...handling.dead_letter_headers import SEQUENCE, STREAM, SUBJECT, letter_block
from ..links.dead_letters import publish_letters
from ..links.link import Link
from ..links.outages import ServerPatience
from ..options.table import BadRule

_LOG: Final = logging.getLogger("headrace.spark")

IN_FLIGHT_MAX: Final = 500  # dead letters that wait for their answers together


class BadMessageError(HeadraceError):
    """A message that the query has to read cannot be put into a row."""


class BadMessage(NamedTuple):
    """A message of the stream, and why it makes no row. ``stored_ns``: when it was stored."""

    sequence: int
    stored_ns: int
    subject: bytes
    headers: bytes
    payload: bytes
    reason: str


def refuse(messages: Sequence[BadMessage]) -> None:
    """Raise BadMessageError about the first one."""
    raise BadMessageError(
        f"message {messages[0].sequence} cannot be read: {messages[0].reason}. Set onBadMessage=skip or "
        "deadletter:<subject> to go on without such messages"
    )


class BadMessages:
    """Takes the bad messages of one task.

    Args:
        rule: what to do with them.
        stream: where they are from.
        connect: opens (or lends) a link for dead letters; it is used for nothing else meanwhile.
        patience: how long to wait for a server that is away.
    """

    def __init__(
        self,
        rule: BadRule,
        stream: str,
        connect: Callable[[], Link],
        patience: ServerPatience,
    ) -> None:
        self._rule = rule
        self._stream = stream
        self._connect = connect
        self._patience = patience
        self._link: Link | None = None
        self._first: BadMessage | None = None
        self.count = 0

    def take(self, messages: Sequence[BadMessage]) -> None:
        """Do with them as told.

        Raises:
            BadMessageError: a bad message fails the query; or a dead letter is too large for the server.
            ConfigurationError: no stream takes the dead letters.
        """
        if self._rule.action == "fail":
            refuse(messages)
        if self._rule.action == "deadletter":
            for at in range(0, len(messages), IN_FLIGHT_MAX):
                self._send(messages[at : at + IN_FLIGHT_MAX])
        self._first = self._first or messages[0]
        self.count += len(messages)

    def report(self) -> None:
        """Say how many there were, if any."""
        if self._first is None:
            return
        to = f"went to {self._rule.subject!r}" if self._rule.subject else "were skipped"
        _LOG.warning(
            "stream %r: %d bad messages of this task %s; the first is message %d: %s",
            self._stream,
            self.count,
            to,
            self._first.sequence,
            self._first.reason,
        )

    def _send(self, messages: Sequence[BadMessage]) -> None:
        self._patience.persist(lambda: self._publish(messages), self._let_go)
        self._patience.restart()

    def _let_go(self) -> None:
        if self._link is not None:
            self._link.close()

    def _publish(self, messages: Sequence[BadMessage]) -> None:
        if self._link is None or self._link.closed:
            self._link = self._connect()
        link = self._link
        blocks = [self._headers(message) for message in messages]
        for message, block in zip(messages, blocks, strict=True):
            if len(block) + len(message.payload) > link.info.max_payload:
                raise BadMessageError(
                    f"stream {self._stream!r}: message {message.sequence} is too large for a dead letter: "
                    f"the server accepts {link.info.max_payload} bytes with headers"
                )
        payloads = [message.payload for message in messages]
        publish_letters(
            link,
            self._rule.subject,
            payloads,
            blocks,
            who="jetstream source",
            option="onBadMessage",
        )

    def _headers(self, message: BadMessage) -> bytes:
        """What the message was. Its own headers may be what is wrong with it, so they travel encoded."""
        subject = message.subject.decode(errors="backslashreplace")
        return letter_block(
            f"{self._stream}:{message.sequence}:{message.stored_ns}",
            [(STREAM, self._stream), (SEQUENCE, str(message.sequence)), (SUBJECT, subject)],
            message.reason,
            message.headers,
        )
