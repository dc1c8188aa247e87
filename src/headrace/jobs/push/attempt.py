"""One call of an endpoint: the headers that tell it about a job, and what is recorded of its answer."""

from __future__ import annotations

import secrets
from datetime import UTC
from email.utils import parsedate_to_datetime

from ...errors import HeadraceError
from .. import limits
from ..models import ClaimedJob, Consumer, Options
from ..runtime.parts import reason_of
from ..runtime.runtime import Runtime
from ..service.push.results import Called
from ..signature import sign
from .guard import OwnMachineError, own_fault
from .sender import EndpointAnswer, Sender

__all__ = ["call_endpoint", "call_headers", "not_made", "retry_after_s", "unexpected"]


def call_headers(
    consumer: Consumer, job: ClaimedJob, options: Options, now_s: int
) -> dict[str, str]:
    """The headers of a push call. The producer's headers come first and cannot replace ours."""
    own = {
        "Content-Type": job.content_type,
        "User-Agent": options.user_agent,
        "X-Request-ID": secrets.token_hex(10),
        "X-Broker-Message-ID": job.message_id,
        "X-Broker-Message-Priority": str(job.priority),
        "X-Broker-Channel-ID": consumer.channel_id,
        "X-Broker-Consumer-ID": consumer.consumer_id,
        "X-Broker-Attempt": str(job.retries + 1),
        "X-Broker-Metadata-Headers": ",".join(sorted(job.headers)),
        options.token_header: consumer.token,
    }
    if job.ordering_key is not None:
        own["X-Broker-Ordering-Key"] = job.ordering_key
    if consumer.settings.sign and consumer.secrets:
        # The id is our own number of the message: the producer's id is not ours to sign.
        own |= sign(consumer.secrets, f"msg_{job.message_seq}", now_s, job.payload)
    taken = {name.lower() for name in own}
    given = {name: value for name, value in job.headers.items() if name.lower() not in taken}
    return {**given, **own}


async def call_endpoint(
    runtime: Runtime, sender: Sender, consumer: Consumer, job: ClaimedJob
) -> Called:
    """Call the endpoint once. Every failure that an endpoint can cause is in what is returned.

    Raises :class:`~.guard.OwnMachineError` if the endpoint has no part in the failure.
    """
    begun_us, begun_ns = runtime.now_us(), runtime.clock.monotonic_ns()
    headers = call_headers(consumer, job, runtime.options, begun_us // 1_000_000)
    answer: EndpointAnswer | None = None
    error: str | None = None
    try:
        answer = await sender.post(
            consumer.callback_url, headers, job.payload, consumer.settings.timeout_s
        )
    except TimeoutError:
        error = f"no answer within {consumer.settings.timeout_s:g} s"
    except OwnMachineError:
        raise
    except (HeadraceError, OSError, MemoryError) as problem:
        if (own := own_fault(problem)) is not None:
            raise own from problem
        error = str(problem)
    ok = answer is not None and 200 <= answer.status < 300
    if answer is not None and not ok:
        error = f"the endpoint answered {answer.status}"
    return Called(
        job=job,
        ok=ok,
        status=0 if answer is None else answer.status,
        error=error,
        excerpt=None if answer is None else _excerpt(answer.body),
        retry_after_s=None
        if answer is None
        else retry_after_s(answer.retry_after, runtime.now_us() / 1e6),
        begun_us=begun_us,
        duration_us=(runtime.clock.monotonic_ns() - begun_ns) // 1000,
    )


def unexpected(runtime: Runtime, job: ClaimedJob, error: Exception) -> Called:
    """Result of a call that ended in an error of ours: it failed, and why."""
    text = f"the service met what it did not expect: {reason_of(error)}"
    return _failed(runtime, job, text)


def not_made(runtime: Runtime, job: ClaimedJob) -> Called:
    """Result of a call that this machine could not make: its job goes back."""
    return _failed(runtime, job, None, own_fault=True)


def _failed(
    runtime: Runtime, job: ClaimedJob, error: str | None, *, own_fault: bool = False
) -> Called:
    return Called(
        job=job,
        ok=False,
        status=0,
        error=error,
        excerpt=None,
        retry_after_s=None,
        begun_us=runtime.now_us(),
        duration_us=0,
        own_fault=own_fault,
    )


def retry_after_s(text: str | None, now_s: float) -> float | None:
    """Seconds of a ``Retry-After``, given in seconds or as a date, an hour at most; ``None`` if it is
    neither.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        # So many digits are more than an hour, and more than a number may have.
        return min(float(text[:18]), limits.RETRY_AFTER_S_MAX)
    try:
        at = parsedate_to_datetime(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        left_s = at.timestamp() - now_s
    except (ValueError, OverflowError, TypeError, IndexError):
        # The parser of the standard library raises each of them for some text that is no date.
        return None
    return min(max(0.0, left_s), limits.RETRY_AFTER_S_MAX)


def _excerpt(body: bytes) -> str | None:
    text = body[: limits.EXCERPT_CHARS_MAX * 4].decode("utf-8", "replace")
    # PostgreSQL cannot store a NUL as text.
    return text[: limits.EXCERPT_CHARS_MAX].replace("\0", "\ufffd") or None
