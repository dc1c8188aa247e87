"""Which subjects a stream listens on.

An update may replace thousands of subjects. The new ones are heard at once; those that go are left in turns
of the loop, and who waits for it is told when the last one is. Until then a message on one of them is
still taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING, Final

from .....api.streams import StreamConfig

if TYPE_CHECKING:
    from .stream import Stream

LEFT_AT_ONCE: Final = 1_000  # some 3 ms


class Listening:
    """The subjects of one stream, in the router and among those that are taken."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._heard: dict[bytes, None] = {}  # those that are left later, too
        self._leaving: dict[bytes, None] = {}
        self._waiting: list[Callable[[], None]] = []
        self._asked = False

    def listen(self, config: StreamConfig) -> None:
        """Hear the subjects of a configuration from now on, and soon no others."""
        wanted = dict.fromkeys(subject.encode() for subject in config.subjects)
        hears = self._stream.publishes
        new = [pattern for pattern in wanted if pattern not in self._heard]
        self._leaving = {pattern: None for pattern in self._heard if pattern not in wanted}
        self._heard.update(dict.fromkeys(new))
        context = self._stream.context
        context.taken.add(new, self._stream.name)
        context.bus.add_sinks(new, hears.ingest, hears.ingest_many, hears.ingest_run)
        if len(self._leaving) <= LEFT_AT_ONCE:
            self._leave(self._leaving)
        self._go_on()

    def end(self) -> None:
        """Hear nothing more."""
        self._leave(list(self._heard))
        self._heard.clear()  # and its table, which has room for thousands
        self._go_on()

    def when_settled(self, then: Callable[[], None]) -> None:
        """Call when no subject is heard any more that is not to be."""
        if self._leaving:
            self._waiting.append(then)
        else:
            then()

    def turn(self) -> None:
        """Leave some, in a turn of the loop."""
        self._asked = False
        self._leave(list(islice(self._leaving, LEFT_AT_ONCE)))
        self._go_on()

    def _go_on(self) -> None:
        if self._leaving:
            if not self._asked:
                self._asked = True
                self._stream.context.barrier.turns.ask(self)
            return
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _leave(self, patterns: Collection[bytes]) -> None:
        context = self._stream.context
        context.taken.remove(patterns, self._stream.name)
        context.bus.remove_sinks(patterns, self._stream.publishes.ingest)
        for pattern in list(patterns):
            del self._heard[pattern]
            self._leaving.pop(pattern, None)
