"""What monitoring reads of the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..net.session import Host

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..accounts.accounts import Accounts
    from ..net.session import Session
    from ..ports.bus import Randomness
    from ..ports.storage import Storage
    from .connections import EndedConnections


class Monitored(Host, Protocol):
    """Implemented by the hub, which stands above this room."""

    about_store: Callable[[], dict[str, Any]]
    """Gives what the shell adds to ``/jsz``."""
    about_process: Callable[[], dict[str, Any]]
    """Gives what the shell adds to ``/varz`` where clients ask for it: processor, memory."""
    connections_total: int
    """How many connections there were since the start."""
    ended_connections: EndedConnections
    is_shutting_down: bool
    past_traffic: list[int]
    """Messages in and out, bytes in and out, of sessions that have ended."""
    random: Randomness
    server_id: str
    sessions: dict[int, Session]
    slow_consumers: int
    started_ns: int
    configured_ns: int
    started_monotonic_ns: int
    storage: Storage | None

    @property
    def accounts(self) -> Accounts: ...

    @property
    def storage_error(self) -> Exception | None:
        """Why the store accepts nothing more; None if it does."""
