"""Who a browser may speak for: which names a service is reached under, and whose pages may change something.

A browser sends requests for any page it shows. Two of them are refused by every HTTP service of ours that
would take them without a secret: one under a name that is not the service's own (its owner moved it to
127.0.0.1, so that the page may read the answers: DNS rebinding), and one by which another site's page wants
to change something. Programs other than browsers send neither ``Origin`` nor ``Sec-Fetch-Site``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

__all__ = ["LOOPBACK_NAMES", "Names", "is_foreign", "is_loopback", "name_of"]

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_OWN: Final = ("same-origin", "none")
_PORTS: Final = {"http": 80, "https": 443}


class Names:
    """The names that ``Host`` may have.

    Args:
        names: these, without a port; case does not matter.
        local: also any address, and any name without a dot: nobody outside can make such a name lead
            here.
    """

    def __init__(self, names: Iterable[str], *, local: bool = False) -> None:
        self._names = frozenset(name.strip("[]").lower() for name in names)
        self._local = local

    def accept(self, host: str) -> bool:
        """Whether ``host``, a ``Host`` header, names this service."""
        name = name_of(host)
        if name in self._names:
            return True
        return self._local and bool(name) and ("." not in name.rstrip(".") or _is_address(name))


def is_foreign(host: str, origin: str | None, fetch_site: str | None) -> bool:
    """Whether the page of another site sent this: by ``Origin`` and ``Sec-Fetch-Site``, where they are.

    Another port is another site, and so is a page without an origin (``null``).
    """
    if fetch_site is not None and fetch_site.strip().lower() not in _OWN:
        return True
    if not origin:
        return False
    try:
        parts = urlsplit(origin.strip())
        here = urlsplit(f"{parts.scheme}://{host.strip()}")
        default = _PORTS.get(parts.scheme)
        return (parts.hostname or "", parts.port or default) != (
            here.hostname,
            here.port or default,
        )
    except ValueError:
        return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """The name in a ``Host`` header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lstrip("[").lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
