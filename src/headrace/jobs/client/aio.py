"""The asyncio client: publishing and the pull API. Definitions and operations are the blocking one's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx2

from . import calls
from .blocking import check, unreachable
from .calls import Call, ItemResult, LeasedJob, Tokens

__all__ = ["AsyncJobsClient"]

T = TypeVar("T")


class AsyncJobsClient:
    """Speaks to the service at ``url``. An async context manager; also usable without, then ``close`` it.

    Methods raise :class:`~headrace.jobs.errors.JobsError` as those of ``JobsClient`` do. They can be
    called concurrently, and cancelled: what was asked for may have happened or not.
    """

    def __init__(
        self,
        url: str,
        *,
        admin_token: str | None = None,
        transport: Any = None,
        connections: int = 100,
    ) -> None:
        headers = {"Accept": "application/json"}
        if admin_token:
            headers["Authorization"] = f"Bearer {admin_token}"
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers=headers,
            transport=transport,
            trust_env=False,
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
        )

    async def __aenter__(self) -> AsyncJobsClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _do(self, call: Call[T]) -> T:
        try:
            response = await self._http.request(
                call.method,
                call.path,
                headers=dict(call.headers),
                content=call.content,
                timeout=call.timeout_s,
            )
        except httpx2.HTTPError as error:
            raise unreachable(error) from error
        check(call, response)
        return call.parse(response.content)

    async def publish(
        self,
        channel: str,
        payload: bytes,
        *,
        channel_token: str,
        producer: str,
        producer_token: str,
        content_type: str = "application/octet-stream",
        message_id: str | None = None,
        priority: int = 0,
        ordering_key: str | None = None,
        scheduled_for: str | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotent: bool = False,
    ) -> dict[str, Any]:
        """Broadcast. ``idempotent`` makes ``message_id`` an idempotency key: the same again is accepted."""
        return await self._do(
            calls.publish(
                channel,
                payload,
                channel_token=channel_token,
                producer=producer,
                producer_token=producer_token,
                content_type=content_type,
                message_id=message_id,
                priority=priority,
                ordering_key=ordering_key,
                scheduled_for=scheduled_for,
                metadata=metadata or {},
                idempotent=idempotent,
            )
        )

    def queue(
        self, channel: str, consumer: str, *, channel_token: str, consumer_token: str
    ) -> Queue:
        """The jobs of one pull consumer."""
        return Queue(self, channel, consumer, Tokens(channel_token, consumer_token))


class Queue:
    """The jobs of one pull consumer: claim them, finish them."""

    def __init__(
        self, client: AsyncJobsClient, channel: str, consumer: str, tokens: Tokens
    ) -> None:
        self._client = client
        self._base = calls.path_of("v2", "channel", channel, "consumer", consumer)
        self._tokens = tokens
        self.name = f"{channel}/{consumer}"

    async def claim(
        self, n: int = 1, *, lease_s: float = 30.0, wait_s: float = 0.0
    ) -> list[LeasedJob]:
        """Lease up to ``n`` jobs, waiting up to ``wait_s`` for the first."""
        return await self._client._do(calls.claim(self._base, self._tokens, n, lease_s, wait_s))

    async def complete(self, jobs: Sequence[LeasedJob]) -> list[ItemResult]:
        """Finish jobs; one result each."""
        return await self._batch("complete", calls.held(jobs))

    async def fail(
        self,
        jobs: Sequence[LeasedJob],
        reason: str,
        *,
        retry_in_s: float | None = None,
        dead: bool = False,
    ) -> list[ItemResult]:
        """Give jobs up for now, or with ``dead`` for good."""
        more = {"reason": reason, "retry_in_seconds": retry_in_s, "dead": dead}
        return await self._batch("fail", [{**item, **more} for item in calls.held(jobs)])

    async def release(self, jobs: Sequence[LeasedJob], delay_s: float = 0.0) -> list[ItemResult]:
        """Give jobs back undone; not counted as a retry."""
        return await self._batch("release", calls.held(jobs), delay_seconds=delay_s)

    async def heartbeat(self, jobs: Sequence[LeasedJob], lease_s: float = 30.0) -> list[ItemResult]:
        """Move the deadlines to ``lease_s`` from now."""
        return await self._batch("heartbeat", calls.held(jobs), lease_seconds=lease_s)

    async def _batch(
        self, what: str, items: Sequence[Mapping[str, Any]], **more: Any
    ) -> list[ItemResult]:
        return await self._client._do(calls.batch(self._base, self._tokens, what, items, **more))
