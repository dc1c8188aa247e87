"""The asyncio client of the job service: definitions, messages, the pull API, operations."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx2

from ..errors import JobsError
from . import calls, management, tracing
from .calls import (
    Call,
    ItemResult,
    LeasedJob,
    OutgoingMessage,
    Progress,
    Settings,
    Tokens,
)
from .sending import BlockingSender, LoopSender, Sender

__all__ = ["AsyncJobsClient", "Queue", "client_over", "on_loop"]

T = TypeVar("T")


class AsyncJobsClient:
    """A client of the service at ``url``. An async context manager; without one, ``close`` it yourself.

    Every method raises :class:`~headrace.jobs.errors.JobsError` with the service's own code and sentence,
    or with status 0 and code ``unreachable`` if no answer came, ``client_closed`` after ``close``. Methods
    can be called concurrently, and cancelled; a cancelled request may or may not have been carried out.

    Args:
        admin_token: required for definitions and operations if the service has one; or an API key, which
            stands for the tokens of channels, producers and consumers, too.
        timeout_s: seconds to wait for an answer, in addition to the time the service was asked to wait.
        connections: the maximum number of open connections.
        transport: sends the requests in place of sockets, for example in tests.
        tls: whose certificates to trust at an ``https`` URL; those of well-known authorities, if not given.
    """

    def __init__(
        self,
        url: str,
        *,
        admin_token: str | None = None,
        timeout_s: float = 30.0,
        connections: int = 100,
        transport: httpx2.AsyncBaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        settings = Settings(url, admin_token, timeout_s, connections, tls)
        self._sender: Sender = LoopSender(settings, transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sender.url!r}>"

    async def __aenter__(self) -> Self:
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
        await self._sender.close()

    async def _do(self, call: Call[T]) -> T:
        return call.read(await self._sender.send(call))

    # Definitions

    async def put_producer(
        self, producer: str, *, token: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Create or change a producer. Arguments that are not given keep their values."""
        return await self._put(calls.path_of("producer", producer), token=token, name=name)

    async def put_channel(
        self, channel: str, *, token: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Create or change a channel. Arguments that are not given keep their values."""
        return await self._put(calls.path_of("channel", channel), token=token, name=name)

    async def put_consumer(
        self,
        channel: str,
        consumer: str,
        *,
        kind: str | None = None,
        callback_url: str | None = None,
        token: str | None = None,
        name: str | None = None,
        max_retries: int | None = None,
    ) -> dict[str, Any]:
        """Create a consumer (``kind`` push or pull; push by default) or change it."""
        return await self._put(
            calls.path_of("channel", channel, "consumer", consumer),
            token=token,
            name=name,
            type=kind,
            callbackUrl=callback_url,
            maxRetries=max_retries,
        )

    async def _put(self, path: str, **fields: str | int | None) -> dict[str, Any]:
        version = await self._do(management.etag(path))
        return await self._do(management.define(path, version, **fields))

    async def channel(self, channel: str) -> dict[str, Any]:
        """A channel: whether it is drained, its messages, scheduled ones, and jobs by state."""
        return await self._do(management.channel(channel))

    async def consumer(self, channel: str, consumer: str) -> dict[str, Any]:
        """A consumer with its settings, and its jobs by state."""
        return await self._do(management.consumer(channel, consumer))

    async def drain_channel(self, channel: str, *, draining: bool = True) -> dict[str, Any]:
        """Let a channel take no more messages (409); what it has is delivered. ``False`` ends that."""
        return await self._do(management.drain(channel, draining=draining))

    async def set_events_channel(self, channel: str, told: str | None) -> dict[str, Any]:
        """Tell channel ``told`` (None: no one) what happens to jobs of ``channel``, as messages."""
        return await self._do(management.tell(channel, told))

    async def delete_channel(self, channel: str, *, discard: bool = False) -> None:
        """Delete a channel with its consumers and messages.

        Unless ``discard``, a JobsError (409) says what is unfinished, if something is.
        """
        await self._remove(calls.path_of("channel", channel), discard="true" if discard else None)

    async def delete_producer(self, producer: str) -> None:
        """Delete a producer; what it has published stays."""
        await self._remove(calls.path_of("producer", producer))

    async def delete_consumer(
        self,
        channel: str,
        consumer: str,
        *,
        discard: bool = False,
        move_to: str | None = None,
        wait_s: float = 30.0,
        on_wait: Callable[[JobsError], object] | None = None,
    ) -> None:
        """Delete a consumer with its jobs; with ``move_to`` waiting and dead ones go to this consumer.

        Unless one of both is given, a JobsError (409) says how many jobs wait or run, if there are any. To be
        moved none may run, and none may be on its way to this consumer from another one that was deleted:
        that is waited for, up to ``wait_s`` seconds, and told to ``on_wait`` as the JobsError it is then.
        """
        path = calls.path_of("channel", channel, "consumer", consumer)
        patience = management.patience(wait_s, time.monotonic)
        while True:
            try:
                discards = "true" if discard else "false"
                return await self._remove(path, discard=discards, move_to=move_to)
            except JobsError as error:
                await self._sender.pause(management.pause_s(patience, error, on_wait))

    async def _remove(self, path: str, **query: str | None) -> None:
        version = await self._do(management.etag(path))
        await self._do(management.remove(path, version, **query))

    async def patch_consumer(
        self, channel: str, consumer: str, **change: Unpack[management.ConsumerChange]
    ) -> dict[str, Any]:
        """Change ``settings``, ``paused``, ``enable``, ``max_retries``, ``name``, ``type`` or
        ``callback_url``.

        Arguments that are not given keep their values.
        """
        return await self._do(management.change(channel, consumer, change))

    async def rotate_secret(
        self, channel: str, consumer: str, *, keep_previous: bool = True
    ) -> str:
        """Create a new signing secret and return it."""
        call = management.new_secret(channel, consumer, keep_previous=keep_previous)
        return await self._do(call)

    async def rotate_token(
        self,
        channel: str,
        consumer: str,
        *,
        token: str | None = None,
        keep_previous: bool = True,
    ) -> str:
        """Give a consumer another token, a new one unless ``token`` names it, and return it.

        The previous one is accepted, too, until tokens change again; without ``keep_previous`` it is not.
        With the token that it has, ``keep_previous=False`` ends the time of the one before.
        """
        call = management.new_token(channel, consumer, token, keep_previous=keep_previous)
        return await self._do(call)

    # Messages

    async def publish(
        self,
        channel: str,
        payload: bytes,
        *,
        channel_token: str = "",
        producer: str = "",
        producer_token: str = "",
        **message: Unpack[calls.MessageOptions],
    ) -> dict[str, Any]:
        """Broadcast.

        ``message`` may have a ``content_type``, ``message_id``, ``priority``, ``ordering_key``,
        ``subject``, ``scheduled_for``, ``metadata`` (headers) and ``unique`` (a ``duplicate`` is answered
        with the first one's id). With ``idempotent``, ``message_id`` is an idempotency key: the same message
        again is accepted.
        """
        with tracing.publishing(channel, message.get("metadata")) as headers:
            message["metadata"] = headers
            return await self._do(
                calls.publish(
                    channel,
                    payload,
                    channel_token=channel_token,
                    producer=producer,
                    producer_token=producer_token,
                    **message,
                )
            )

    async def publish_batch(
        self,
        channel: str,
        messages: Sequence[OutgoingMessage],
        *,
        channel_token: str = "",
        producer: str = "",
        producer_token: str = "",
    ) -> list[dict[str, Any]]:
        """Broadcast up to 500 messages, in one transaction: all or none. Returns one answer for each.

        Each has the ``id``, how many ``jobs`` were made, and whether it is ``scheduled`` or was there before
        (``replayed``). A JobsError names the message that is refused by its number.
        """
        return await self._do(
            calls.publish_batch(
                channel,
                messages,
                channel_token=channel_token,
                producer=producer,
                producer_token=producer_token,
            )
        )

    # Schedules

    async def put_schedule(
        self,
        channel: str,
        schedule: str,
        cron: str,
        payload: bytes,
        **options: Unpack[management.ScheduleOptions],
    ) -> dict[str, Any]:
        """Publish ``payload`` again and again, by ``cron``: five fields (``0 6 * * mon-fri``), six (seconds
        first) or ``@daily`` and its like. Replaces the schedule of this id.

        ``options`` may have a ``time_zone``, ``missed`` (``once``, ``all``, ``skip``), ``paused``, and of
        its messages what ``publish`` takes. Returns it with the times that come (``upcoming``).
        """
        call = management.put_schedule(channel, schedule, cron, payload, options)
        return await self._do(call)

    async def schedule(self, channel: str, schedule: str) -> dict[str, Any]:
        """A schedule with its message and the times that come."""
        return await self._do(management.schedule(channel, schedule))

    async def schedules(self, channel: str) -> list[dict[str, Any]]:
        """The schedules of a channel, by id, each with its next time and its last."""
        return await self._do(management.schedules(channel))

    async def delete_schedule(self, channel: str, schedule: str) -> None:
        """Delete a schedule; what it has published stays."""
        await self._do(management.remove_schedule(channel, schedule))

    # Pulling

    def queue(
        self, channel: str, consumer: str, *, channel_token: str = "", consumer_token: str = ""
    ) -> Queue:
        """The jobs of one pull consumer; the methods below, without naming it in each call."""
        return Queue(self, channel, consumer, Tokens(channel_token, consumer_token))

    async def claim(
        self,
        channel: str,
        consumer: str,
        tokens: Tokens,
        n: int = 1,
        *,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
    ) -> list[LeasedJob]:
        """Lease up to ``n`` jobs, waiting up to ``wait_s`` for the first."""
        return await self._do(calls.claim(channel, consumer, tokens, n, lease_s, wait_s))

    async def complete(
        self, channel: str, consumer: str, tokens: Tokens, jobs: Sequence[LeasedJob]
    ) -> list[ItemResult]:
        """Complete jobs. Returns one result for each."""
        return await self._do(calls.finish(channel, consumer, tokens, "complete", jobs))

    async def fail(
        self,
        channel: str,
        consumer: str,
        tokens: Tokens,
        jobs: Sequence[LeasedJob],
        reason: str,
        *,
        retry_in_s: float | None = None,
        dead: bool = False,
    ) -> list[ItemResult]:
        """Fail jobs: they are retried, or with ``dead`` given up for good."""
        each = {"reason": calls.storable(reason), "retry_in_seconds": retry_in_s, "dead": dead}
        return await self._do(calls.finish(channel, consumer, tokens, "fail", jobs, each))

    async def release(
        self,
        channel: str,
        consumer: str,
        tokens: Tokens,
        jobs: Sequence[LeasedJob],
        delay_s: float = 0.0,
    ) -> list[ItemResult]:
        """Return jobs undone. This does not count as a retry."""
        call = calls.finish(channel, consumer, tokens, "release", jobs, delay_seconds=delay_s)
        return await self._do(call)

    async def heartbeat(
        self,
        channel: str,
        consumer: str,
        tokens: Tokens,
        jobs: Sequence[LeasedJob],
        lease_s: float = 30.0,
        *,
        progress: Mapping[str, Progress] | None = None,
    ) -> list[ItemResult]:
        """Move the deadlines to ``lease_s`` from now. ``progress`` says how far jobs are, by their ids."""
        told = progress or {}
        return await self._do(calls.heartbeat(channel, consumer, tokens, jobs, lease_s, told))

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
        """Calls of a push consumer's endpoint lately: each five minutes with calls, oldest first.

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
            for job in page.items:
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
            for job in page.items:
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
        return await self._do(management.create_key(name, scopes, channels, expires_in_s))

    async def api_keys(self) -> AsyncIterator[dict[str, Any]]:
        """The API keys, newest first, page by page: scopes, channels, when made, used, expired, revoked."""
        path: str | None = management.KEYS
        while path:
            page = await self._do(management.keys_page(path))
            for key in page.items:
                yield key
            path = page.next

    async def revoke_key(self, key: str) -> None:
        """Revoke the API key of this id. Other processes of the service know it within a second."""
        await self._do(management.revoke_key(key))

    async def audit(
        self, *, key: str | None = None, channel: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The audit log, newest first, page by page: all of it, or what the API key of an id did, or what was
        done in a channel.
        """
        path: str | None = management.audit_path(key, channel)
        while path:
            page = await self._do(management.audit_page(path))
            for entry in page.items:
                yield entry
            path = page.next


class Queue:
    """The jobs of one pull consumer: claim them, finish them. Created by ``client.queue(…)``.

    Attributes:
        name: channel and consumer.
    """

    def __init__(
        self, client: AsyncJobsClient, channel: str, consumer: str, tokens: Tokens
    ) -> None:
        self._client = client
        self._channel = channel
        self._consumer = consumer
        self._tokens = tokens
        self.name = f"{channel}/{consumer}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    async def claim(
        self, n: int = 1, *, lease_s: float = 30.0, wait_s: float = 0.0
    ) -> list[LeasedJob]:
        """Lease up to ``n`` jobs, waiting up to ``wait_s`` for the first."""
        return await self._client.claim(
            self._channel, self._consumer, self._tokens, n, lease_s=lease_s, wait_s=wait_s
        )

    async def complete(self, jobs: Sequence[LeasedJob]) -> list[ItemResult]:
        """Complete jobs. Returns one result for each."""
        return await self._client.complete(self._channel, self._consumer, self._tokens, jobs)

    async def fail(
        self,
        jobs: Sequence[LeasedJob],
        reason: str,
        *,
        retry_in_s: float | None = None,
        dead: bool = False,
    ) -> list[ItemResult]:
        """Fail jobs: they are retried, or with ``dead`` given up for good."""
        where = self._channel, self._consumer, self._tokens
        return await self._client.fail(*where, jobs, reason, retry_in_s=retry_in_s, dead=dead)

    async def release(self, jobs: Sequence[LeasedJob], delay_s: float = 0.0) -> list[ItemResult]:
        """Return jobs undone. This does not count as a retry."""
        where = self._channel, self._consumer, self._tokens
        return await self._client.release(*where, jobs, delay_s)

    async def heartbeat(
        self,
        jobs: Sequence[LeasedJob],
        lease_s: float = 30.0,
        *,
        progress: Mapping[str, Progress] | None = None,
    ) -> list[ItemResult]:
        """Move the deadlines to ``lease_s`` from now. ``progress`` says how far jobs are, by their ids."""
        where = self._channel, self._consumer, self._tokens
        return await self._client.heartbeat(*where, jobs, lease_s, progress=progress)


def client_over(sender: Sender) -> AsyncJobsClient:
    """A client whose requests this sends."""
    client = AsyncJobsClient.__new__(AsyncJobsClient)
    client._sender = sender
    return client


def on_loop(queue: Queue) -> tuple[AsyncJobsClient, Queue]:
    """A client for an event loop, as the one that blocks whose queue this is, and its queue."""
    sender = queue._client._sender
    assert isinstance(sender, BlockingSender)
    client = client_over(sender.on_loop())
    return client, Queue(client, queue._channel, queue._consumer, queue._tokens)
