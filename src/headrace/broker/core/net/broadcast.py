"""One message for thousands of subscriptions, delivered in parts. A turn may end between two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....wire.frames import Frame

if TYPE_CHECKING:
    from ..ports.bus import Origin
    from .route import Route
    from .router import Router

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

    def __init__(
        self, router: Router, route: Route, publish: Frame, origin: Origin, skip_client: int
    ) -> None:
        self._deliver = router.deliver
        self._parts = iter(route.parts)
        self._message = publish[1:]
        self._origin, self._skip_client = origin, skip_client
        self._has_begun = False

    def step(self) -> int:
        """Deliver to one more part. Returns its weight in a turn, 0 when everybody has the message."""
        part = next(self._parts, None)
        if part is None:
            return 0
        if self._has_begun and any([s.closed for s in part.plain]):  # noqa: C419 - quicker as a list
            part = type(part)(tuple([s for s in part.plain if not s.closed]))
        self._has_begun = True
        subject, reply, headers, payload = self._message
        self._deliver(part, subject, reply, headers, payload, self._origin, self._skip_client)
        return part.weight
