"""The data types of the service, shared by its packages. Times are microseconds since 1970, UTC."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import msgspec

from . import limits
from .errors import bad_request
from .matching.filters import MessageFilter
from .matching.unique import UniqueKey
from .retry_policy import BreakerPolicy, RetryPolicy
from .states import State

__all__ = [
    "ClaimedJob",
    "Consumer",
    "ConsumerSettings",
    "Kind",
    "NewMessage",
    "Options",
    "Published",
    "Waiting",
    "digest_of",
    "http_date",
    "is_reserved",
    "payload_fields",
    "rfc3339",
    "state_name",
]

Kind = Literal["push", "pull"]

# A producer must not change the headers that the service itself sends to an endpoint.
_RESERVED_HEADERS: Final = {
    *(
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
    ),
    *(
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ),
    *("x-request-id", "forwarded"),
}
_RESERVED_PREFIXES: Final = ("x-broker-", "webhook-", "x-headrace-", "proxy-")


def is_reserved(header: str) -> bool:
    """Whether a header is the service's own, or the connection's: no message has it as metadata."""
    lower = header.lower()
    return lower in _RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIXES)


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one consumer.

    ``timeout_s`` limits one push call. ``concurrency`` and ``rate_per_s`` limit the calls of one process
    (0: no rate limit). ``sign`` adds Standard Webhooks signatures. ``outcomes`` records the outcome of each
    job, to be published to a stream. ``filter`` says which messages of the channel become jobs.
    """

    retry: RetryPolicy = RetryPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    timeout_s: float = limits.PUSH_TIMEOUT_S_DEFAULT
    concurrency: int = limits.PUSH_CONCURRENCY_DEFAULT
    rate_per_s: float = 0.0
    sign: bool = True
    outcomes: bool = False
    filter: MessageFilter = MessageFilter()

    def check(self) -> None:
        """Reject invalid settings: 400, with the field."""
        size = len(msgspec.json.encode(self))
        if size > limits.SETTINGS_BYTES_MAX:
            most = limits.SETTINGS_BYTES_MAX
            raise bad_request(
                "settings_too_large",
                f"settings, with their filter, have at most {most} bytes as JSON; these have {size}",
                "settings",
            )
        self.retry.check()
        self.breaker.check()
        self.filter.check()
        if not 0 < self.timeout_s <= limits.PUSH_TIMEOUT_S_MAX:
            raise bad_request(
                "invalid_timeout", f"above 0, at most {limits.PUSH_TIMEOUT_S_MAX:g} s", "timeout_s"
            )
        if not 1 <= self.concurrency <= limits.PUSH_CONCURRENCY_MAX:
            raise bad_request(
                "invalid_concurrency",
                f"1 to {limits.PUSH_CONCURRENCY_MAX} calls at once",
                "concurrency",
            )
        if not 0 <= self.rate_per_s <= 1e6:
            raise bad_request("invalid_rate", "0 (no limit) to 1000000 per second", "rate_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A stored consumer. Tokens and ``secrets`` leave the service only where they are used."""

    seq: int
    channel_seq: int
    channel_id: str
    consumer_id: str
    name: str
    kind: Kind
    callback_url: str
    max_retries: int
    settings: ConsumerSettings
    paused: bool
    disabled_us: int | None
    disabled_reason: str | None
    failing_since_us: int | None
    updated_us: int
    token: str = field(repr=False)
    previous_token: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message that a producer broadcasts."""

    payload: bytes
    content_type: str = "application/octet-stream"
    message_id: str | None = None
    priority: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    scheduled_us: int | None = None
    unique: UniqueKey | None = None


class Waiting(NamedTuple):
    """A stored message whose jobs are still to be made, as are those of its channel before it."""

    channel_seq: int
    message_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a broadcast. ``replayed``: the same message was stored before; ``duplicate``: one that is
    the same by what had to be unique, and whose id this is; ``waiting``: no jobs were made of it yet.
    """

    message_id: str
    scheduled: bool
    jobs: int
    replayed: bool = False
    duplicate: bool = False
    waiting: Waiting | None = None


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job under a lease, with its message."""

    seq: int
    lease: str
    deadline_us: int
    attempt: int
    retries: int
    priority: int
    created_us: int
    message_seq: int
    message_id: str
    payload: bytes
    content_type: str
    headers: dict[str, str]
    ordering_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The behaviour of the service; every field is a setting of ``headrace jobs serve``."""

    max_retries: int = limits.MAX_RETRIES_DEFAULT
    rational_delay_s: float = limits.RATIONAL_DELAY_S_DEFAULT
    connection_timeout_s: float = limits.CONNECTION_TIMEOUT_S_DEFAULT
    retry_delays_s: tuple[float, ...] | None = None
    schedule_min_delay_s: float = limits.SCHEDULE_MIN_DELAY_S_DEFAULT
    payload_bytes_max: int = limits.PAYLOAD_BYTES_MAX_DEFAULT
    token_header: str = "X-Broker-Consumer-Token"  # noqa: S105
    user_agent: str = "headrace-jobs"
    allow_networks: tuple[str, ...] = ()
    https_only: bool = False

    def default_settings(self) -> ConsumerSettings:
        """The settings of a new consumer."""
        delays_s = self.retry_delays_s
        retry = (
            RetryPolicy() if delays_s is None else RetryPolicy(kind="schedule", delays_s=delays_s)
        )
        return ConsumerSettings(
            retry=retry,
            timeout_s=min(self.connection_timeout_s, limits.PUSH_TIMEOUT_S_MAX),
        )


def http_date(us: int) -> str:
    """``Mon, 02 Jan 2006 15:04:05 GMT``; the fraction is dropped."""
    at = datetime.fromtimestamp(us // 1_000_000, UTC)
    return (
        f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year} "
        f"{at.hour:02}:{at.minute:02}:{at.second:02} GMT"
    )


@lru_cache(256)  # all jobs of a claim have one deadline
def rfc3339(us: int) -> str:
    """``2006-01-02T15:04:05.999999Z``, trailing zeros dropped."""
    seconds, fraction = divmod(us, 1_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:06}".rstrip("0").rstrip(".") + "Z"


def payload_fields(payload: bytes) -> tuple[str, str | None]:
    """A payload for JSON: its text, or its base64 and the word ``base64`` if it is not UTF-8."""
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


def state_name(state: int) -> str:
    """The name of a stored state."""
    return State(state).name


def digest_of(message: NewMessage) -> str:
    """Digest that tells whether two messages are the same."""
    parts = (
        message.content_type,
        str(message.priority),
        message.ordering_key or "",
        str(message.scheduled_us),
        json.dumps(message.headers, sort_keys=True) if message.headers else "{}",
    )
    made = hashlib.sha256("\0".join(parts).encode())
    made.update(message.payload)
    return made.hexdigest()
