"""Rows that make no message, and what is done with them (``onBadRow``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...errors import HeadraceError
from ...handling.dead_letter_headers import ROW, SINK, SUBJECT, TRUNCATED, letter_block
from ...wire.headers import EMPTY_BLOCK
from ..links.dead_letters import publish_letters
from ..links.outages import ServerPatience
from ..options.table import BadRule
from .options import ACCEPTED
from .rows import BadRow, digest_of
from .task import Links

IN_FLIGHT_MAX: Final = 500  # dead letters that wait for their answers together
_HEADERS_MAX: Final = (
    32 * 1024
)  # bytes of a row's own headers in a letter; longer ones are left out
_LETTER_BYTES: Final = 2048  # for the letter's other headers


class BadRowError(HeadraceError):
    """A row cannot be written as a message."""


class BadRows:
    """Takes the bad rows of one task.

    Args:
        source: what the letters say they are from: sink, batch and partition.
        links: for the letters. They are sent while nothing else is under way on the connection.
    """

    def __init__(self, rule: BadRule, source: str, links: Links, patience: ServerPatience) -> None:
        self._rule = rule
        self._source = source
        self._links = links
        self._patience = patience
        self.count = 0
        self.first = ""

    def take(self, rows: Sequence[BadRow]) -> None:
        """Do with them as told.

        Raises:
            BadRowError: a bad row fails the task.
            ConfigurationError: no stream takes the dead letters.
        """
        first = f"row {rows[0].label} of {self._source}: {rows[0].reason}"
        if self._rule.action == "fail":
            raise BadRowError(
                f"a row cannot be written: {first}. Set onBadRow=skip or deadletter:<subject> to go on "
                "without such rows"
            )
        if self._rule.action == "deadletter":
            for at in range(0, len(rows), IN_FLIGHT_MAX):
                self._send(rows[at : at + IN_FLIGHT_MAX])
        self.first = self.first or first
        self.count += len(rows)

    def _send(self, rows: Sequence[BadRow]) -> None:
        self._patience.persist(lambda: self._publish(rows), self._links.drop)
        self._patience.restart()

    def _publish(self, rows: Sequence[BadRow]) -> None:
        link = self._links.get()
        payloads, blocks = [], []
        for row in rows:
            lines = row.lines if len(row.lines) <= _HEADERS_MAX else b""
            room = max(0, link.info.max_payload - _LETTER_BYTES - 2 * len(lines))
            payloads.append(row.payload[:room])
            blocks.append(self._headers(row, lines, room))
        publish_letters(
            link, self._rule.subject, payloads, blocks, who=ACCEPTED.who, option="onBadRow"
        )

    def _headers(self, row: BadRow, lines: bytes, room: int) -> bytes:
        """What the row was. Its own headers may be what is wrong with it, so they travel encoded."""
        # In other partitions another row may have the same label.
        digest = digest_of(row.subject, row.lines, row.payload)
        subject = row.subject[:512].decode(errors="backslashreplace")
        about = [(SINK, self._source), (ROW, row.label), (SUBJECT, subject)]
        if len(row.payload) > room:
            about.append((TRUNCATED, str(len(row.payload))))
        own = EMPTY_BLOCK[:-2] + lines + EMPTY_BLOCK[-2:] if lines else b""
        return letter_block(f"{self._source}:{row.label}:{digest}", about, row.reason, own)
