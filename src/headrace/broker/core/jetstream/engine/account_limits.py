"""What an account may store, and what all accounts of a server may store together.

Limits are checked when a stream is made or changed (what it reserves) and when a message is published
(what is used). Usage is counted once per tick in which a limit matters, and added to within the tick:
an account without limits on a server without limits pays one look at a boolean per stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamConfig
from ...account_options import JetStreamLimits
from ..api.ports import Usage
from ..config.refused import Refused

if TYPE_CHECKING:
    from .registry import Registry

_RECORD_BYTES: Final = 30  # what nats-server counts for a message beside its content


class ServerStore:
    """What the streams of all accounts use together, and may."""

    def __init__(self, max_memory: int = -1, max_storage: int = -1) -> None:
        self.max_memory = max_memory
        self.max_storage = max_storage
        self.members: list[Registry] = []

    def used(self, storage: str) -> int:
        """Bytes used by every account."""
        return sum(_used(member.usage(), storage) for member in self.members)

    def reserved(self, storage: str) -> int:
        """Bytes reserved by the ``max_bytes`` of every stream."""
        return sum(member.reserved(storage) for member in self.members)

    def most(self, storage: str) -> int:
        return self.max_memory if storage == "memory" else self.max_storage


class Quota:
    """One account's limits, asked by its streams."""

    def __init__(
        self, registry: Registry, limits: JetStreamLimits, server: ServerStore | None = None
    ) -> None:
        self._registry = registry
        self._server = server or ServerStore()
        self._server.members.append(registry)
        self.limits = limits
        self._counts: dict[tuple[str, str], int] = {}

    def new_tick(self) -> None:
        if self._counts:
            self._counts.clear()

    def bounds(self, storage: str) -> bool:
        """Whether what is published into a stream of this storage has to be admitted."""
        return self._most(storage) >= 0 or self._server.most(storage) >= 0

    def check_stream(self, config: StreamConfig, before: StreamConfig | None = None) -> None:
        """Refuse a stream that reserves more than there is; ``before`` is what it was."""
        wanted, limits = config.max_bytes, self.limits
        storage = config.storage
        if wanted <= 0 and limits.max_bytes_required:
            raise Refused(Errors.STREAM_MAX_BYTES_REQUIRED)
        per_stream = limits.max_stream_memory if storage == "memory" else limits.max_stream_storage
        if 0 < per_stream < wanted:
            raise Refused(Errors.STREAM_MAX_BYTES_EXCEEDED)
        if 0 < limits.max_consumers < config.max_consumers:
            raise Refused(Errors.MAX_CONSUMERS)
        already = 0 if before is None else max(before.max_bytes, 0)
        if wanted <= already and before is not None:
            return
        wanted = wanted if wanted > 0 else 1  # a stream of any size needs a place, too
        more = wanted - already
        most, everywhere = self._most(storage), self._server.most(storage)
        if (-1 < most < self._registry.reserved(storage) + more) or (
            -1 < everywhere < self._server.reserved(storage) + more
        ):
            raise Refused(
                Errors.MEMORY_RESOURCES_EXCEEDED
                if storage == "memory"
                else Errors.STORAGE_RESOURCES_EXCEEDED
            )

    def admit(self, storage: str, content_bytes: int) -> None:
        """Refuse a message for which there is no room; else count it."""
        size = content_bytes + _RECORD_BYTES
        self._admit(
            "account", storage, size, self._most(storage), Errors.ACCOUNT_RESOURCES_EXCEEDED
        )
        server = self._server
        self._admit("server", storage, size, server.most(storage), Errors.INSUFFICIENT_RESOURCES)

    def _admit(self, whose: str, storage: str, size: int, most: int, refusal: ErrorSpec) -> None:
        if most < 0:
            return
        key = (whose, storage)
        used = self._counts.get(key)
        if used is None:
            used = self._count(whose, storage)
        if used + size > most:
            self._counts[key] = used
            raise Refused(refusal)
        self._counts[key] = used + size

    def _count(self, whose: str, storage: str) -> int:
        if whose == "server":
            return self._server.used(storage)
        return _used(self._registry.usage(), storage)

    def _most(self, storage: str) -> int:
        return self.limits.max_memory if storage == "memory" else self.limits.max_storage


def _used(usage: Usage, storage: str) -> int:
    return usage.memory_bytes if storage == "memory" else usage.storage_bytes
