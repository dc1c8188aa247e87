"""What monitoring reads of the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..net.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..accounts.accounts import Accounts
    from ..net.session import Session
    from ..ports import Randomness, Storage
    from .connections import EndedConnections

__all__ = ["Monitored"]


class Monitored(Host, Protocol):
    """Implemented by the hub, which stands above this room."""

    @property
    def accounts(self) -> Accounts: ...

    @property
    def about_store(self) -> Callable[[], dict[str, Any]]:
        """Gives what the shell adds to ``/jsz``."""
        ...

    @property
    def connections_total(self) -> int:
        """How many connections there were since the start."""
        ...

    @property
    def ended_connections(self) -> EndedConnections: ...

    @property
    def is_shutting_down(self) -> bool: ...

    @property
    def past_traffic(self) -> Sequence[int]:
        """Messages in and out, bytes in and out, of sessions that have ended."""
        ...

    @property
    def random(self) -> Randomness: ...

    @property
    def server_id(self) -> str: ...

    @property
    def sessions(self) -> Mapping[int, Session]: ...

    @property
    def slow_consumers(self) -> int: ...

    @property
    def started_ns(self) -> int: ...

    @property
    def started_monotonic_ns(self) -> int: ...

    @property
    def storage(self) -> Storage | None: ...

    @property
    def storage_error(self) -> Exception | None:
        """Why the store accepts nothing more; None if it does."""
        ...
