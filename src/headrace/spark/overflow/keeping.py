"""Tells the server, as long as a batch runs, that its messages are in work: nobody else gets them meanwhile.

Spark calls the query's process rarely and waits for its answers, so this has a thread and a link of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from ...api.acks import IN_PROGRESS
from ...errors import HeadraceError
from ..links.link import Link

_LOG: Final = logging.getLogger("headrace.spark")

SENT_AT_ONCE: Final = 1000


class Keeper:
    """Holds messages back from others.

    Args:
        connect: opens a link, which nobody else uses.
        interval_s: how often the server is told; less than the consumer's ``ack_wait``.
        what: whose messages, for the log.
    """

    def __init__(self, connect: Callable[[], Link], interval_s: float, what: str) -> None:
        self._connect = connect
        self._interval_s = interval_s
        self._what = what
        self._held: tuple[bytes, ...] = ()
        self._changed = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._has_failed = False

    def hold(self, subjects: Iterable[str]) -> None:
        """Hold the messages with these ack subjects from now on, and no others."""
        held = tuple(subject.encode() for subject in subjects)
        with self._changed:
            self._held = held
            self._changed.notify()
        if held and self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"keeps {self._what}", daemon=True
            )
            self._thread.start()

    def release(self) -> None:
        """Hold nothing."""
        self.hold(())

    def close(self) -> None:
        """End the thread, and wait for it."""
        with self._changed:
            self._is_over, self._held = True, ()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_over:
                    break
                held = self._held
            if held:
                self._tell(held)
            with self._changed:
                if not self._is_over and self._held is held:
                    self._changed.wait(self._interval_s if held else None)
        if self._link is not None:
            self._link.close()

    def _tell(self, held: tuple[bytes, ...]) -> None:
        try:
            if self._link is None or not self._link.is_alive():
                self._link = self._connect()
            for first in range(0, len(held), SENT_AT_ONCE):
                some = held[first : first + SENT_AT_ONCE]
                size = len(IN_PROGRESS)
                self._link.send(
                    b"".join([b"PUB %b %d\r\n%b\r\n" % (each, size, IN_PROGRESS) for each in some])
                )
            self._has_failed = False
        except HeadraceError as error:
            if not self._has_failed:
                _LOG.warning(
                    "the server cannot be told that messages of %s are in work, and may hand them to others: "
                    "%s",
                    self._what,
                    error,
                )
            self._has_failed = True
