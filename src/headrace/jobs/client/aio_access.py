"""API keys and the audit log, for the asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from . import access
from .calls import Call

__all__ = ["AsyncAccess"]

T = TypeVar("T")


class AsyncAccess:
    """What a client can do about who may do what."""

    async def _do(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        channels: Sequence[str] = ("*",),
        expires_in_s: float | None = None,
    ) -> dict[str, Any]:
        """Make an API key. ``scopes`` are ``publish``, ``consume``, ``operate``, ``admin``; ``channels`` are
        names, in which ``*`` is any text.

        Returns it with its ``id`` and the ``key`` itself, which is shown this once.
        """
        return await self._do(access.create_key(name, scopes, channels, expires_in_s))

    async def api_keys(self) -> AsyncIterator[dict[str, Any]]:
        """The API keys, newest first, page by page: scopes, channels, when made, used, expired, revoked."""
        path: str | None = access.KEYS
        while path:
            page = await self._do(access.keys_page(path))
            for key in page.items:
                yield key
            path = page.next

    async def revoke_key(self, key: str) -> None:
        """Revoke the API key of this id. Other processes of the service know it within a second."""
        await self._do(access.revoke_key(key))

    async def audit(
        self, *, key: str | None = None, channel: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The audit log, newest first, page by page: all of it, or what the API key of an id did, or what was
        done in a channel.
        """
        path: str | None = access.audit_path(key, channel)
        while path:
            page = await self._do(access.audit_page(path))
            for entry in page.items:
                yield entry
            path = page.next
