"""The protocol of a connection as log lines, in nats-server's form, and who a client is in any line.

Nothing is traced unless the logger ``headrace.broker.trace`` is enabled for the level ``TRACE`` when the
client connects. What is traced is read a second time, beside the session: it costs those who ask for it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from ....wire import Parser
from ....wire.frames import BAD, CONNECT, ERR, INFO, MSG, OK, PING, PONG, PUB, SUB, UNSUB, Frame

if TYPE_CHECKING:
    from ...core.net.session import Session

__all__ = [
    "PAYLOAD_BYTES_SHOWN",
    "TRACE",
    "Trace",
    "quoted",
    "say_closed",
    "show_payloads",
    "trace_of",
    "who",
]

TRACE: Final = 5
"""The level, below DEBUG."""

_logger = logging.getLogger("headrace.broker.trace")
_connections = logging.getLogger("headrace.broker")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\r": "\\r", "\n": "\\n", "\t": "\\t"}
_SECRETS: Final = re.compile(
    rb'("(?:pass|auth_token|sig|jwt)"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE
)
PAYLOAD_BYTES_SHOWN: Final = (
    4096  # of a message, unless told otherwise; more keeps everybody waiting
)
_ENDED_SHOWN: Final = 1000  # subscriptions that end at once; the others are counted
_PAYLOAD_MAX: Final = 64 * 1024 * 1024  # what the session refuses is traced up to here
_LINE_MAX: Final = 64 * 1024
_WORDS: Final = {PING: "PING", PONG: "PONG", OK: "+OK"}


def who(session: Session) -> str:
    """The client as log lines name it: ``127.0.0.1:4222 - cid:5 - "v1.0:python:orders"``."""
    peer, options = session.peer, session.options
    line = (
        f"{peer.host}:{peer.port} - cid:{session.client_id}"
        if peer.host
        else f"cid:{session.client_id}"
    )
    version = f"v{options.version}" if options.version else ""
    said = ":".join(filter(None, (version, options.lang, options.name)))
    return f"{line} - {quoted(said)}" if said else line


def say_closed(session: Session, reason: str) -> None:
    """Log that a connection is over; whoever was cut off for reading too slowly is named to everybody."""
    if session.close_reason.startswith("Slow Consumer"):
        user = f", user {quoted(session.identity.name)}" if session.identity.name else ""
        why = session.close_reason.removeprefix("Slow Consumer ")
        _connections.info("%s - Slow Consumer Detected %s%s", who(session), why, user)
    _connections.debug("%s - Client connection closed: %s", who(session), reason)


def quoted(text: str) -> str:
    """Text in quotes on one line: nothing in it can end the line, or command a terminal."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    shown = []
    for character in text:
        if character in _ESCAPES:
            shown.append(_ESCAPES[character])
        elif character.isprintable():
            shown.append(character)
        elif "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
            shown.append(f"\\x{ord(character) - 0xDC00:02x}")
        else:
            code = ord(character)
            shown.append(f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")
    return f'"{"".join(shown)}"'


def show_payloads(nbytes: int | None) -> None:
    """Show this many bytes of each message from now on, all with 0 or less; None: as it was configured.

    For the whole process, as the level of the log is.
    """
    global _payload_bytes
    _payload_bytes = PAYLOAD_BYTES_SHOWN if nbytes is None else max(0, nbytes)


_payload_bytes = PAYLOAD_BYTES_SHOWN


def trace_of(session: Session) -> Trace | None:
    """The trace of a new connection, if anybody wants one."""
    return Trace(session) if _logger.isEnabledFor(TRACE) else None


class Trace:
    """Writes a line for everything that goes over one connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._heard = Parser.for_server(max_payload=_PAYLOAD_MAX, max_control_line=_LINE_MAX)
        self._said = Parser.for_client()
        session.tell_ended(self.ended)

    def heard(self, data: bytes) -> None:
        """Bytes of the client; call it before they are handled."""
        for frame in self._heard.feed(data):
            self._line("<<-", frame)

    def said(self, parts: list[bytes]) -> None:
        """Bytes to the client."""
        for frame in self._said.feed(b"".join(parts)):
            if frame[0] != INFO:
                self._line("->>", frame)

    def _line(self, direction: str, frame: Frame) -> None:
        name = who(self._session)
        _logger.log(TRACE, "%s - %s [%s]", name, direction, _command(frame))
        body = frame[-2] + frame[-1] if frame[0] in (PUB, MSG) else b""
        if body:
            most = _payload_bytes or len(body)
            payload = quoted(body[:most].decode(errors="surrogateescape"))
            more = "..." if len(body) > most else ""
            _logger.log(TRACE, '%s - %s MSG_PAYLOAD: [%s%s"]', name, direction, payload[:-1], more)

    def ended(self, sids: list[bytes]) -> None:
        """Subscriptions that are gone: unsubscribed, at their number of messages, or with the client."""
        name = who(self._session)
        for sid in sids[:_ENDED_SHOWN]:
            _logger.log(
                TRACE, "%s - <-> [DELSUB %s]", name, quoted(sid.decode(errors="replace"))[1:-1]
            )
        if len(sids) > _ENDED_SHOWN:
            _logger.log(TRACE, "%s - <-> [DELSUB of %d more]", name, len(sids) - _ENDED_SHOWN)


def _command(frame: Frame) -> str:
    """The line of the protocol, without the secrets of CONNECT."""
    op = frame[0]
    if op == CONNECT:
        line = b"CONNECT " + _SECRETS.sub(rb'\1"[REDACTED]"', frame[1])
    elif op == PUB:
        line = _message(b"PUB", frame[1], b"", frame[2], frame[3], frame[4])
    elif op == MSG:
        line = _message(b"MSG", frame[1], frame[2], frame[3], frame[4], frame[5])
    elif op == SUB:
        line = b" ".join(filter(None, (b"SUB", *frame[1:])))
    elif op == UNSUB:
        line = b"UNSUB %b" % frame[1] + (b" %d" % frame[2] if frame[2] else b"")
    elif op == ERR:
        line = b"-ERR '%b'" % frame[1].encode(errors="surrogateescape")
    elif op == BAD:
        line = b"not the NATS protocol: %b" % str(frame[1]).encode(errors="replace")
    else:
        return _WORDS[op]
    return quoted(line.decode(errors="surrogateescape"))[1:-1].replace('\\"', '"')


def _message(
    verb: bytes, subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes
) -> bytes:
    sizes = [b"%d" % len(headers)] if headers else []
    sizes.append(b"%d" % (len(headers) + len(payload)))
    return b" ".join(filter(None, (b"H" + verb if headers else verb, subject, sid, reply, *sizes)))
