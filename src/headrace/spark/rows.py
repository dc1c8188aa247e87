"""Stored messages as the ways without a consumer bring them."""

from __future__ import annotations

from typing import NamedTuple


class Rows(NamedTuple):
    """Messages, column by column; ``times`` as the server writes them."""

    subjects: list[bytes]
    payloads: list[bytes]
    headers: list[bytes]
    sequences: list[int]
    times: list[bytes]

    def add(self, more: Rows) -> None:
        """Append the others."""
        self.subjects.extend(more.subjects)
        self.payloads.extend(more.payloads)
        self.headers.extend(more.headers)
        self.sequences.extend(more.sequences)
        self.times.extend(more.times)


def no_rows() -> Rows:
    """Rows to add to."""
    return Rows([], [], [], [], [])
