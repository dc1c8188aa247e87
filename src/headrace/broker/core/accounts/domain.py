"""The JetStream domain of a server: the API also answers under its name (``$JS.<domain>.API.…``)."""

from __future__ import annotations

from typing import Final

from ....errors import ConfigurationError
from ..net.router import Router
from ..ports import Origin

__all__ = ["DomainApi", "check_domain"]

_API: Final = b"$JS.API."


def check_domain(domain: str) -> None:
    """Raise ConfigurationError for a name that cannot be one token of a subject."""
    if domain == "API" or any(c in ".*>" or c.isspace() or not c.isprintable() for c in domain):
        raise ConfigurationError(
            f"domain: {domain!r}; accepted is a name without blanks, '.', '*' and '>', other than API"
        )


class DomainApi:
    """A sink that hands what comes for the domain to the API of the same account."""

    def __init__(self, router: Router, domain: str) -> None:
        self._router = router
        self._prefix = f"$JS.{domain}.API.".encode()
        router.add_sink(self._prefix + b">", self)

    def __call__(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        router, ours = self._router, _API + subject[len(self._prefix) :]
        return router.deliver(router.find(ours), ours, reply, headers, payload, origin, 0) > 0
