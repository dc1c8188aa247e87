"""At least once, and dedupe: many messages wait for their acks together, and none is taken for stored
without its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from ...api.envelope import decode_pub_ack
from ...api.errors import Errors
from ...errors import (
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from ...wire.headers import says_nobody
from ..links.link import Link
from ..links.outages import ServerPatience
from .dead_letters import BadRows
from .options import ACCEPTED
from .rows import BadRow, Rows
from .task import Links

SEND_AT_ONCE: Final = 500
WINDOW_FIRST: Final = 500
WINDOW_LEAST: Final = 50
QUICK_S: Final = 0.25  # for half a window: it may be larger
SLOW_S: Final = 1.0  # … or must be smaller
BYTES_IN_FLIGHT_MAX: Final = 16 * 1024 * 1024
REFUSED_ROWS: Final = frozenset(
    {
        Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code,
        Errors.STREAM_HEADER_EXCEEDS_MAXIMUM.err_code,
        Errors.MESSAGE_TTL_INVALID.err_code,
    }
)
"""Errors about one message: too large, headers too large, a wrong TTL. The next one may be taken."""

_Entry = tuple[bytes, bytes, bytes, int]  # subject, header block, payload, bytes of all


class WindowPublisher:
    """Publishes rows in their order, as far ahead of the acks as the server is quick, at most
    ``max_in_flight`` or 16 MiB.

    Args:
        quiet_s: for how long nothing may come before the connection is given up.
        patience: how long a server may be away.

    Attributes:
        stored: how many rows are acknowledged.
        duplicates: how many of them the stream had already.
    """

    def __init__(
        self,
        stream: str,
        links: Links,
        patience: ServerPatience,
        bad_rows: BadRows,
        *,
        max_in_flight: int,
        quiet_s: float,
    ) -> None:
        self._stream = stream
        self._good = b'{"stream":"%b"' % stream.encode()
        self._links = links
        self._patience = patience
        self._bad_rows = bad_rows
        self._max_in_flight = max_in_flight
        self._window = min(WINDOW_FIRST, max_in_flight)
        self._quiet_s = quiet_s
        self._link: Link | None = None
        self._prefix = b""
        self._sid = b""
        self._unacked: dict[bytes, _Entry] = {}
        self._unacked_bytes = 0
        self._refused: list[BadRow] = []
        self.stored = 0
        self.duplicates = 0

    def add(self, rows: Rows, numbers: Sequence[int]) -> None:
        """Publish rows, which have these numbers in the task; returns while some may still wait for acks."""
        at = 0
        while at < len(rows):
            room = self._window - len(self._unacked)
            if room <= 0 or self._unacked_bytes > BYTES_IN_FLIGHT_MAX:
                self._make_room()
                continue
            end = at + min(room, SEND_AT_ONCE)
            part = Rows(*(column[at:end] for column in rows))
            self._persist(self._sender(part, numbers[at:end]))
            at = end

    def _make_room(self) -> None:
        """Wait for half of the acks, and learn how many a server can give in a moment.

        One that syncs after every message takes seconds for thousands; they would pass for lost.
        """
        begun, before = time.monotonic(), len(self._unacked)
        left = min(self._window, before) // 2
        self._persist(lambda: self._hear(left))
        half_s = (time.monotonic() - begun) * self._window / 2 / (before - left)
        if half_s < QUICK_S:
            self._window = min(2 * self._window, self._max_in_flight)
        elif half_s > SLOW_S:
            self._window = max(self._window // 2, min(WINDOW_LEAST, self._max_in_flight))
        self._tell_refused()

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        self._persist(lambda: self._hear(0))
        self._tell_refused()
        self._links.end(self._sid)

    # -- sending

    def _sender(self, rows: Rows, numbers: Sequence[int]) -> Callable[[], None]:
        """Takes the rows in at its first call; at others only sends what waits."""
        taken = False

        def send() -> None:
            nonlocal taken
            link = self._linked(resend=taken)
            if not taken:
                taken = True
                link.send(b"".join(self._take(rows, numbers)))

        return send

    def _take(self, rows: Rows, numbers: Sequence[int]) -> list[bytes]:
        unacked, prefix, size = self._unacked, self._prefix, 0
        out: list[bytes] = []
        for number, subject, lines, payload in zip(numbers, *rows, strict=True):
            key = b"%d" % number
            length = len(payload)
            if lines:
                block = b"NATS/1.0\r\n%b\r\n" % lines
                head = len(block)
                data = b"HPUB %b %b%b %d %d\r\n%b%b\r\n" % (
                    subject, prefix, key, head, head + length, block, payload,
                )  # fmt: skip
                unacked[key] = subject, block, payload, head + length
                size += head + length
            else:
                data = b"PUB %b %b%b %d\r\n%b\r\n" % (subject, prefix, key, length, payload)
                unacked[key] = subject, b"", payload, length
                size += length
            out.append(data)
        self._unacked_bytes += size
        return out

    def _linked(self, *, resend: bool) -> Link:
        """The connection, with an inbox for acks; on a new one everything that waits is sent again."""
        link = self._links.get()
        if link is not self._link:
            self._prefix, self._sid = link.subscribe_below()
            self._link = link
            resend = True
        if resend and self._unacked:
            self._send_again(link, self._unacked)
        return link

    def _send_again(self, link: Link, entries: dict[bytes, _Entry]) -> None:
        out = []
        for key, (subject, block, payload, size) in entries.items():
            to = self._prefix + key
            if block:
                out.append(b"HPUB %b %b %d %d\r\n" % (subject, to, len(block), size))
            else:
                out.append(b"PUB %b %b %d\r\n" % (subject, to, size))
            out += (block, payload, b"\r\n")
        link.send(b"".join(out))

    # -- acks

    def _hear(self, at_most: int) -> None:
        """Take acks in until no more than so many messages wait for theirs."""
        link = self._linked(resend=False)
        skip, good, unacked = len(self._prefix), self._good, self._unacked
        while len(unacked) > at_most:
            frames = link.poll(self._quiet_s)
            if not frames:
                raise RequestTimeoutError(
                    f"no ack of stream {self._stream!r} within {self._quiet_s:g} s"
                )
            for _, to, _, _, headers, payload in frames:
                key = to[skip:]
                if payload.startswith(good) or self._is_stored(key, headers, payload):
                    entry = unacked.pop(key, None)
                    if entry is not None:
                        self._unacked_bytes -= entry[3]
                        self.stored += 1
                        self.duplicates += b'"duplicate"' in payload
            self._patience.restart()

    def _is_stored(self, key: bytes, headers: bytes, payload: bytes) -> bool:
        """Read an answer that is no ordinary ack. A row that is refused for itself is put aside."""
        if key not in self._unacked:
            return False  # of a message that was sent again, and answered
        subject = self._unacked[key][0].decode(errors="backslashreplace")
        if says_nobody(headers, payload):
            raise NoRespondersError(f"no stream takes {subject!r} at the moment")
        try:
            ack = decode_pub_ack(payload)
        except JetStreamApiError as error:
            if error.err_code not in REFUSED_ROWS:
                raise
            subject_, block, body, size = self._unacked.pop(key)
            self._unacked_bytes -= size
            lines = block[len(b"NATS/1.0\r\n") : -2]
            self._refused.append(BadRow(key.decode(), subject_, lines, body, str(error)))
            return False
        if ack.stream != self._stream:
            raise ACCEPTED.error(
                f"{subject!r} was stored by stream {ack.stream!r}, not by {self._stream!r}"
            )
        return True

    def _tell_refused(self) -> None:
        if self._refused:
            refused, self._refused = self._refused, []
            self._bad_rows.take(refused)

    def _persist(self, action: Callable[[], None]) -> None:
        """Do it, and again on a new connection while the server may come back."""

        def let_go() -> None:
            self._links.drop()
            self._link = None

        self._patience.persist(action, let_go)
