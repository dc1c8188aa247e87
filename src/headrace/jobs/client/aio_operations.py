"""What operators do, for the asyncio client: status, jobs found, cancelled and replayed, dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from . import management
from .calls import Call, Tokens

__all__ = ["AsyncOperations"]

T = TypeVar("T")


class AsyncOperations:
    """What a client can do about jobs that others work on."""

    async def _do(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def status(self) -> dict[str, Any]:
        """The state of the service, and every consumer's counts."""
        return await self._do(management.status())

    async def events(self) -> list[dict[str, Any]]:
        """The newest events."""
        return await self._do(management.events())

    async def job(self, channel: str, consumer: str, job: str) -> dict[str, Any]:
        """A job with its attempts."""
        return await self._do(management.job(channel, consumer, job))

    async def endpoint_calls(
        self, channel: str, consumer: str, *, last_s: float = 86_400.0
    ) -> list[dict[str, Any]]:
        """How the endpoint of a push consumer answered lately: each five minutes with calls, oldest first.

        Each has ``at``, ``calls``, ``failed``, ``p50_seconds`` and ``p95_seconds``, of all processes
        together; they are told every ten seconds and kept for a day.
        """
        return await self._do(management.endpoint_calls(channel, consumer, last_s))

    async def find_jobs(
        self,
        channel: str,
        *,
        consumer: str | None = None,
        message: str | None = None,
        states: Sequence[str] = (),
        older_than_s: float = 0.0,
        payload: Mapping[str, str | Sequence[str]] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """The jobs of a channel, newest first, page by page: of push and of pull consumers.

        Each has its ``id``, ``consumer``, ``message``, ``state``, ``last_error`` and times; :meth:`job`
        returns its attempts. ``states`` are QUEUED, INFLIGHT, DELIVERED, DEAD; none is all. ``payload`` has
        patterns of values by their paths, such as ``{"$.order.id": "7"}``: all payloads are looked through.
        """
        path: str | None = management.jobs_path(
            channel, consumer, message, states, older_than_s, payload
        )
        while path:
            page = await self._do(management.jobs_page(path))
            for job in page.jobs:
                yield job
            path = page.next

    async def cancel_jobs(
        self, channel: str, **wanted: Unpack[management.JobsToCancel]
    ) -> dict[str, Any]:
        """Cancel one ``job``, or all that are waiting or running and match ``consumer``, ``message``,
        ``states``, ``older_than_s`` and ``payload``. Needs a filter at least.

        A waiting job is DEAD at once, with the reason ``cancelled``. One that runs is told at its next
        heartbeat, and is DEAD when its claim ends, unless it is completed first. Returns how many were
        ``waiting`` and ``running``; with ``dry_run`` nothing is changed.
        """
        return await self._do(management.cancel(channel, wanted))

    async def replay_jobs(
        self, channel: str, **wanted: Unpack[management.JobsToReplay]
    ) -> dict[str, Any]:
        """Hand out jobs again that were delivered or are dead, with all their retries.

        Of ``messages``, or made between ``since`` and ``until`` (RFC 3339; now, if it is not given); of one
        ``consumer``, or of each; with such values in ``payload``. ``states`` are DELIVERED, DEAD; none is
        both. ``rate_per_s`` spreads them; 0 is all at once. Returns how many were ``delivered``
        and ``dead``; with ``dry_run`` nothing is changed.
        """
        return await self._do(management.replay(channel, wanted))

    async def feeds(self, channel: str | None = None) -> list[dict[str, Any]]:
        """The feeds, or those of a ``channel``.

        Of each, jobs are made of all up to ``sequence``, and ``lag`` messages of its stream are to come.
        ``state`` is ``feeding``, ``backlog`` (the channel has ``unfinished_max`` unfinished jobs),
        ``failing`` (``problem`` says why) or ``away`` (no process has told of it lately).
        """
        return await self._do(management.feeds(channel))

    async def feed_again(
        self, channel: str, feed: str, *, sequence: int | None = None, since: str | None = None
    ) -> dict[str, Any]:
        """Make jobs again of what the stream still has, from a ``sequence`` or a time ``since`` on.

        ``since`` is RFC 3339. For all consumers of the channel: who has no job of a message gets one, and
        finished ones are handed out again, but for those that were cancelled. Returns the feed; it goes back
        within seconds.
        """
        return await self._do(management.feed_again(channel, feed, sequence, since))

    async def dead_jobs(self, channel: str, consumer: str) -> AsyncIterator[dict[str, Any]]:
        """All dead jobs, newest first, page by page."""
        path: str | None = management.dead_path(channel, consumer)
        while path:
            page = await self._do(management.dead_page(path))
            for job in page.jobs:
                yield job
            path = page.next

    async def requeue_dead(self, channel: str, consumer: str, *, consumer_token: str = "") -> None:
        """Requeue all dead jobs."""
        await self._do(management.requeue_dead(channel, consumer, consumer_token))

    async def purge_dead(
        self, channel: str, consumer: str, *, channel_token: str = "", consumer_token: str = ""
    ) -> int:
        """Delete all dead jobs. Returns their number."""
        tokens = Tokens(channel_token, consumer_token)
        return await self._do(management.purge_dead(channel, consumer, tokens))
