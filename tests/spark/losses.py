"""A connection that is lost at each read and each write in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.spark.links.link import Link

READ_BYTES = 5000  # small, so that a test's few messages come in many reads


class Losses:
    """Loses a connection once, while it is entered, at a step of its round.

    A step is a read, the moment before a write (it never leaves) or the moment after it (its answer is
    never read). Rounds go on until one has fewer steps than it would lose a connection at.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at = 0
        self._steps = 0
        self._is_on = False
        read, send = Link._read, Link.send

        def lossy_read(link: Link, timeout_s: float) -> bytes | None:
            self._step(link)
            return read(link, timeout_s)

        def lossy_send(link: Link, data: bytes) -> None:
            self._step(link)
            send(link, data)
            self._step(link)

        monkeypatch.setattr(Link, "_read", lossy_read)
        monkeypatch.setattr(Link, "send", lossy_send)
        monkeypatch.setattr("headrace.spark.links.link.READ_CHUNK_BYTES", READ_BYTES)

    def rounds(self, at_least: int, *, every: int = 1) -> Iterator[int]:
        """The steps at which a connection is lost, ``every`` so many: at first 0, which is none.

        A round without a loss has ``at_least`` so many steps.
        """
        while self._steps >= self._at:
            self._steps = 0
            yield self._at
            assert self._at or self._steps >= at_least, f"only {self._steps} steps"
            self._at += every if self._at else 1

    def __enter__(self) -> None:
        self._is_on = True

    def __exit__(self, *_: object) -> None:
        self._is_on = False

    def _step(self, link: Link) -> None:
        if self._is_on and not link.closed:
            self._steps += 1
            if self._steps == self._at:
                link.close()
