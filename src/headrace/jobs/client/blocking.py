"""The blocking client: definitions, operations, and the pull API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx2

from ..errors import JobsError
from . import calls
from .calls import Call, ItemResult, LeasedJob, Tokens

__all__ = ["JobsClient"]

T = TypeVar("T")


class JobsClient:
    """Speaks to the service at ``url``. A context manager; also usable without, then ``close`` it.

    Every method raises :class:`~headrace.jobs.errors.JobsError` with the service's own code and sentence,
    and one with status 0 and code ``unreachable`` when no answer came. One client may be used by
    several threads.
    """

    def __init__(
        self, url: str, *, admin_token: str | None = None, timeout_s: float = 30.0
    ) -> None:
        headers = {"Accept": "application/json"}
        if admin_token:
            headers["Authorization"] = f"Bearer {admin_token}"
        self._http = httpx2.Client(
            base_url=url, headers=headers, timeout=timeout_s, trust_env=False
        )

    def __enter__(self) -> JobsClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _do(self, call: Call[T]) -> T:
        return call.parse(self._send(call).content)

    def _send(self, call: Call[Any]) -> httpx2.Response:
        try:
            response = self._http.request(
                call.method,
                call.path,
                headers=dict(call.headers),
                content=call.content,
                timeout=call.timeout_s,
            )
        except httpx2.HTTPError as error:
            raise unreachable(error) from error
        check(call, response)
        return response

    # Definitions

    def put_producer(
        self, producer: str, *, token: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Create a producer or change it; what is not given stays."""
        path = calls.path_of("producer", producer)
        return self._put(path, calls.form_of(token=token, name=name))

    def put_channel(
        self, channel: str, *, token: str | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Create a channel or change it; what is not given stays."""
        path = calls.path_of("channel", channel)
        return self._put(path, calls.form_of(token=token, name=name))

    def put_consumer(
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
        """Create a consumer (``kind`` push or pull; push when not given) or change it."""
        content = calls.form_of(
            token=token, name=name, type=kind, callbackUrl=callback_url, maxRetries=max_retries
        )
        return self._put(calls.path_of("channel", channel, "consumer", consumer), content)

    def _put(self, path: str, content: bytes) -> dict[str, Any]:
        etag = None
        try:
            etag = self._send(Call("GET", path, calls.decode)).headers.get("etag")
        except JobsError as error:
            if error.status != 404:
                raise
        return self._do(calls.put_definition(path, content, etag))

    def patch_consumer(self, channel: str, consumer: str, **change: Any) -> dict[str, Any]:
        """Change ``settings``, ``paused``, ``enable``, ``max_retries``, ``name``, ``type`` or
        ``callback_url``; what is not given stays.
        """
        return self._do(
            Call("PATCH", _detail(channel, consumer), calls.decode, content=_json(change))
        )

    def rotate_secret(self, channel: str, consumer: str, *, keep_previous: bool = True) -> str:
        """Make a new signing secret and return it."""
        path = _detail(channel, consumer) + "/secret"
        body = _json({"keep_previous": keep_previous})
        secret: str = self._do(Call("POST", path, calls.decode, content=body))["secret"]
        return secret

    # Messages

    def publish(
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
        return self._do(
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

    # Pulling

    def claim(
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
        return self._do(calls.claim(_detail(channel, consumer), tokens, n, lease_s, wait_s))

    def complete(
        self, channel: str, consumer: str, tokens: Tokens, jobs: Sequence[LeasedJob]
    ) -> list[ItemResult]:
        """Finish jobs; one result each."""
        return self._do(
            calls.batch(_detail(channel, consumer), tokens, "complete", calls.held(jobs))
        )

    def fail(
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
        """Give jobs up for now, or with ``dead`` for good."""
        items = [
            {**item, "reason": reason, "retry_in_seconds": retry_in_s, "dead": dead}
            for item in calls.held(jobs)
        ]
        return self._do(calls.batch(_detail(channel, consumer), tokens, "fail", items))

    def release(
        self,
        channel: str,
        consumer: str,
        tokens: Tokens,
        jobs: Sequence[LeasedJob],
        delay_s: float = 0.0,
    ) -> list[ItemResult]:
        """Give jobs back undone; not counted as a retry."""
        return self._do(
            calls.batch(
                _detail(channel, consumer),
                tokens,
                "release",
                calls.held(jobs),
                delay_seconds=delay_s,
            )
        )

    def heartbeat(
        self,
        channel: str,
        consumer: str,
        tokens: Tokens,
        jobs: Sequence[LeasedJob],
        lease_s: float = 30.0,
    ) -> list[ItemResult]:
        """Move the deadlines to ``lease_s`` from now."""
        return self._do(
            calls.batch(
                _detail(channel, consumer),
                tokens,
                "heartbeat",
                calls.held(jobs),
                lease_seconds=lease_s,
            )
        )

    # Operations

    def status(self) -> dict[str, Any]:
        """What runs, and every consumer's counts."""
        return self._do(Call("GET", "/_status", _mapping))

    def events(self) -> list[dict[str, Any]]:
        """The newest events."""
        found: list[dict[str, Any]] = self._do(Call("GET", "/v2/events", calls.decode))["events"]
        return found

    def job(self, channel: str, consumer: str, job: str) -> dict[str, Any]:
        """A job with its attempts."""
        return self._do(
            Call("GET", _detail(channel, consumer) + calls.path_of("job", job), _mapping)
        )

    def dead_jobs(self, channel: str, consumer: str) -> Iterator[dict[str, Any]]:
        """All dead jobs, newest first, page by page."""
        path: str | None = _plain(channel, consumer) + "/dlq"
        while path:
            page = self._do(Call("GET", path, _mapping))
            yield from page["DeadJobs"]
            path = page["Pages"].get("next")

    def requeue_dead(self, channel: str, consumer: str, *, consumer_token: str) -> None:
        """Send all dead jobs back."""
        content = calls.form_of(requeue=consumer_token)
        self._do(
            Call(
                "POST",
                _plain(channel, consumer) + "/dlq",
                calls.nothing,
                calls.FORM,
                content,
                600.0,
            )
        )

    def purge_dead(
        self, channel: str, consumer: str, *, channel_token: str, consumer_token: str
    ) -> int:
        """Delete all dead jobs; how many."""
        headers = Tokens(channel_token, consumer_token).headers()
        path = _plain(channel, consumer) + "/dlq"
        count: int = self._do(Call("DELETE", path, calls.decode, headers, timeout_s=600.0))[
            "deletedCount"
        ]
        return count


def check(call: Call[Any], response: httpx2.Response) -> None:
    """Raise what a refusal tells."""
    if response.is_success:
        return
    # A batch that was refused as a whole has a problem for a body, and no results.
    if response.status_code in call.accept and b'"results"' in response.content[:20]:
        return
    raise calls.problem_of(
        response.status_code, response.content, response.headers.get("retry-after")
    )


def unreachable(error: httpx2.HTTPError) -> JobsError:
    """No answer came."""
    return JobsError(
        0, "unreachable", f"the service did not answer: {type(error).__name__} {error}".strip()
    )


def _detail(channel: str, consumer: str) -> str:
    return calls.path_of("v2", "channel", channel, "consumer", consumer)


def _plain(channel: str, consumer: str) -> str:
    return calls.path_of("channel", channel, "consumer", consumer)


def _json(document: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(document)


def _mapping(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = calls.decode(content)
    return found
