"""The pin of a priority group: learned from messages, sent with pulls, dropped when refused."""

from __future__ import annotations

from collections.abc import Callable

from ....api.names import PIN_ID
from ....wire.headers import header_value

_PIN_ID = PIN_ID.encode()


class Pin:
    """One consumer handle's pin id, shared by its fetches and consumes.

    Attributes:
        id: the id the server gave us, "" while we are not pinned.
        on_pinned: called with the id when we become the pinned client.
        on_unpinned: called when another client is.
    """

    __slots__ = ("_is_sent", "_report", "id", "on_pinned", "on_unpinned")

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report
        self._is_sent = False  # some pull had this id
        self.id = ""
        self.on_pinned: Callable[[str], object] | None = None
        self.on_unpinned: Callable[[], object] | None = None

    def learn(self, headers: bytes) -> None:
        """Read the pin id of a delivered message; an absent or empty one says nothing."""
        value = header_value(headers, _PIN_ID) if headers else None
        if not value:
            return
        pin_id = value.decode(errors="replace")
        if pin_id != self.id:
            self.id = pin_id
            self._is_sent = False
            if self.on_pinned is not None:
                self._call(self.on_pinned, pin_id)

    def use(self) -> str:
        """The id for a pull that is being sent."""
        self._is_sent = True
        return self.id

    def lost(self) -> None:
        """A pull with an id was refused. As long as none was sent with this one, it had an older one."""
        if self.id and self._is_sent:
            self.id = ""
            if self.on_unpinned is not None:
                self._call(self.on_unpinned)

    def _call(self, callback: Callable[..., object], *args: str) -> None:
        try:
            callback(*args)
        except Exception as error:
            self._report(error)
