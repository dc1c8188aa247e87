"""One message for thousands of subscriptions, delivered in parts. A turn may end between two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....wire.frames import Frame

if TYPE_CHECKING:
    from ..ports import Origin
    from .router import Route, Router

__all__ = ["BROADCAST", "PART_RECEIVERS", "Broadcast", "parts_of"]

BROADCAST: Final = b"*"
"""The first of a frame no parser makes: ``(BROADCAST, Broadcast)``, a message that is handed over in part."""

PART_RECEIVERS: Final = 1024


def parts_of(route: Route) -> tuple[Route, ...]:
    """Split a route: sinks, queue groups and the first subscriptions, then the other subscriptions."""
    size, plain = PART_RECEIVERS, route.plain
    kind = type(route)
    rest = [kind(plain[at : at + size]) for at in range(size, len(plain), size)]
    return (kind(plain[:size], route.groups, route.sinks), *rest)


class Broadcast:
    """The rest of one publish. Later parts skip subscriptions that have ended since the first."""

    __slots__ = (
        "_at",
        "_headers",
        "_origin",
        "_parts",
        "_payload",
        "_reply",
        "_router",
        "_skip_client",
        "_subject",
    )

    def __init__(
        self, router: Router, route: Route, publish: Frame, origin: Origin, skip_client: int
    ) -> None:
        self._router = router
        self._parts = route.parts
        _, self._subject, self._reply, self._headers, self._payload = publish
        self._origin = origin
        self._skip_client = skip_client
        self._at = 0

    def step(self) -> int:
        """Deliver to one more part. Returns its weight in a turn, 0 when everybody has the message."""
        if self._at == len(self._parts):
            return 0
        part = self._parts[self._at]
        if self._at and any([s.closed for s in part.plain]):  # noqa: C419 - quicker as a list
            part = type(part)(tuple([s for s in part.plain if not s.closed]))
        self._at += 1
        self._router.deliver(
            part,
            self._subject,
            self._reply,
            self._headers,
            self._payload,
            self._origin,
            self._skip_client,
        )
        return part.weight
