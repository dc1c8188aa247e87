"""The requests of the clients and the parsing of answers, shared by both clients. No I/O."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from .. import ids, limits
from ..errors import JobsError, bad_request

__all__ = [
    "CLOSED",
    "Call",
    "ItemResult",
    "LeasedJob",
    "OutgoingMessage",
    "Progress",
    "ServiceAnswer",
    "Settings",
    "Tokens",
    "as_form",
    "as_json",
    "client_closed",
    "problem_of",
    "storable",
    "unreachable",
]

T = TypeVar("T")

CLOSED: Final = "client_closed"
"""Code of what was asked of a client that is closed."""

_UNREADABLE: Final = (
    msgspec.MsgspecError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings with which a client connects to its service."""

    url: str
    admin_token: str | None = field(repr=False)
    timeout_s: float
    connections: int
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def headers(self) -> dict[bytes, bytes]:
        """The headers of every request, as they are sent. Raises JobsError (400): no header carries the
        token."""
        headers = {b"Accept": b"application/json"}
        if self.admin_token:
            token = ids.check_header("admin_token", self.admin_token, "admin_token")
            headers[b"Authorization"] = b"Bearer " + token.encode()
        return headers

    def trust(self) -> ssl.SSLContext | bool:
        """Whose certificates to trust, as httpx takes it: True, the authorities of this machine, is read by
        it where a client is made. At an ``http`` address, where nobody shows one, nothing is read."""
        if self.tls is not None:
            return self.tls
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self.url[:5].lower() == "http:" else True


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """An answer of the service. ``headers`` is looked up case-insensitively."""

    status: int
    content: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how to read its answer.

    Attributes:
        wait_s: how long the service may wait before it answers.
        timeout_min_s: how long the work may take, whatever the client's usual timeout.
        accept: error statuses that ``parse`` understands.
    """

    method: str
    path: str
    parse: Callable[[ServiceAnswer], T]
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    wait_s: float = 0.0
    timeout_min_s: float = 0.0
    accept: tuple[int, ...] = ()

    def timeout_s(self, usual_s: float) -> float:
        """Seconds to wait for the answer."""
        return max(usual_s, self.timeout_min_s) + self.wait_s

    def sent_headers(self) -> dict[bytes, bytes]:
        """The headers as they are sent: text that is not ASCII as UTF-8.

        Raises JobsError (400) for what no header can carry.
        """
        for name, value in self.headers.items():
            ids.check_header(name, value, name)
        return {name.encode(): value.encode() for name, value in self.headers.items()}

    def read(self, answer: ServiceAnswer) -> T:
        """The parsed answer. Raises JobsError if the service rejected the request."""
        if not 200 <= answer.status < 300 and answer.status not in self.accept:
            raise problem_of(answer.status, answer.content, answer.headers.get("retry-after"))
        try:
            return self.parse(answer)
        except _UNREADABLE as error:
            # Something between us and the service answered in its place, a proxy most likely.
            start = answer.content[:200].decode("utf-8", "replace")
            raise JobsError(
                0, "unreadable_answer", f"this is no answer of a job service: {start!r}"
            ) from error


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a pull consumer; none, if the client has an API key."""

    channel_token: str = field(default="", repr=False)
    consumer_token: str = field(default="", repr=False)

    def headers(self) -> dict[str, str]:
        """The headers that carry them."""
        return _given(
            {
                "X-Broker-Channel-Token": self.channel_token,
                "X-Broker-Consumer-Token": self.consumer_token,
            }
        )


def _given(headers: Mapping[str, str]) -> dict[str, str]:
    """Leave out what has no value."""
    return {name: value for name, value in headers.items() if value}


class LeasedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job. ``lease`` finishes it; ``attempt`` counts claims from 1."""

    id: str
    lease: str
    deadline: datetime
    attempt: int
    priority: int
    message_id: str
    payload: bytes
    content_type: str
    headers: dict[str, str]
    ordering_key: str | None


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of a job: the share that is ``done``, 0 to 1, a ``note``, or both."""

    done: float | None = None
    note: str = ""

    @classmethod
    def made(cls, done: float | None, note: str) -> Progress:
        """Check it, for sending. Raises ValueError for a share that is none, and where nothing is said."""
        if done is not None and not 0 <= done <= 1:
            raise ValueError(f"done is {done}; accepted: a share of the work, 0 to 1")
        if done is None and not note:
            raise ValueError("accepted: done, a note, or both")
        return cls(done, storable(note)[: limits.PROGRESS_NOTE_CHARS_MAX])


class ItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one item: ``ok``, ``lease_lost``, ``lease_ceiling`` or ``not_found``."""

    id: str
    status: int
    code: str
    message: str | None = None
    state: str | None = None
    at: datetime | None = None


class _Results(msgspec.Struct):
    results: list[ItemResult]


def storable(reason: object) -> str:
    """A reason as it can be sent and stored: of limited length, without half characters and NULs."""
    cut = str(reason)[: limits.REASON_CHARS_MAX].replace("\0", "\ufffd")
    return cut.encode("utf-8", "replace").decode()


def problem_of(status: int, content: bytes, retry_after: str | None) -> JobsError:
    """The error in an answer."""
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        code, message = str(document["code"]), str(document["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        code, message, document = "refused", content.decode("utf-8", "replace")[:500], {}
    is_number = retry_after is not None and retry_after.isascii() and retry_after.isdigit()
    seconds = float(retry_after[:9]) if retry_after is not None and is_number else None
    return JobsError(status, code, message, document.get("field"), retry_after_s=seconds)


def unreachable(error: Exception) -> JobsError:
    """The error for a request without an answer."""
    text = f"the service did not answer: {type(error).__name__} {error}".strip()
    return JobsError(0, "unreachable", text)


def client_closed() -> JobsError:
    """The error for a request of a client that is closed."""
    return JobsError(0, CLOSED, "the client is closed; it sends no more requests")


def mapping(answer: ServiceAnswer) -> dict[str, Any]:
    """The answer's JSON document, which is an object."""
    found: dict[str, Any] = msgspec.json.decode(answer.content)
    return found


def path_of(*parts: str) -> str:
    try:
        return "/" + "/".join(quote(part, safe="") for part in parts)
    except UnicodeEncodeError as error:
        raise _half_character(error) from None


def as_json(document: Any) -> bytes:
    """A body of JSON. Raises JobsError (400) for text that has no UTF-8."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise _half_character(error) from None


def as_form(fields: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """A form, or a query. Raises JobsError (400) for text that has no UTF-8."""
    try:
        return urlencode(fields)
    except UnicodeEncodeError as error:
        raise _half_character(error) from None


def _half_character(error: UnicodeEncodeError) -> JobsError:
    start = max(0, error.start - 20)
    near = error.object[start : error.end + 20]
    return bad_request(
        "invalid_text", f"half a character (a lone surrogate) cannot be sent: {near!r}"
    )


class MessageOptions(TypedDict, total=False):
    """Fields of a message that ``publish`` takes beside its payload."""

    content_type: str
    """``application/octet-stream``, if not given."""

    message_id: str | None
    """Unique in the channel; made by the service, if not given."""

    priority: int
    """Higher goes first; 0, if not given."""

    ordering_key: str | None
    """Jobs of one key are handed out one at a time, in order."""

    subject: str | None
    """Subject, such as ``orders.eu.paid``: the filters of consumers go by it."""

    scheduled_for: str | None
    """Time at which it is dispatched, RFC 3339; at once, if not given."""

    metadata: Mapping[str, str] | None
    """Headers that are stored, and handed on with its jobs."""

    unique: Mapping[str, Any] | None
    """``by`` what it is unique, ``within`` seconds, ``while`` the first has a job in one of these states."""

    idempotent: bool
    """Whether ``message_id`` is an idempotency key: the same message again is accepted."""


def publish(
    channel: str,
    payload: bytes,
    *,
    channel_token: str = "",
    producer: str = "",
    producer_token: str = "",
    content_type: str = "application/octet-stream",
    message_id: str | None = None,
    priority: int = 0,
    ordering_key: str | None = None,
    subject: str | None = None,
    scheduled_for: str | None = None,
    metadata: Mapping[str, str] | None = None,
    unique: Mapping[str, Any] | None = None,
    idempotent: bool = False,
) -> Call[dict[str, Any]]:
    metadata = metadata or {}
    _check_carried(metadata, content_type)
    headers = {
        **metadata,
        **_publisher(channel_token, producer, producer_token),
        "X-Broker-Message-Priority": str(priority),
        "Content-Type": content_type,
    }
    optional = {
        "Idempotency-Key" if idempotent else "X-Broker-Message-ID": message_id,
        "X-Broker-Ordering-Key": ordering_key,
        "X-Broker-Subject": subject,
        "X-Broker-Scheduled-For": scheduled_for,
        "X-Broker-Metadata-Headers": ",".join(metadata) or None,
        "X-Broker-Unique": None if unique is None else as_json(unique).decode(),
    }
    headers |= {name: value for name, value in optional.items() if value is not None}
    return Call("POST", path_of("v2", "channel", channel, "messages"), mapping, headers, payload)


def _check_carried(metadata: Mapping[str, str], content_type: str) -> None:
    """Refuse what the service would, before a header changes it on its way: JobsError 400."""
    for name, value in metadata.items():
        ids.check_header(name, value, name)
    ids.check_header("Content-Type", content_type, "content_type")


def _publisher(channel_token: str, producer: str, producer_token: str) -> dict[str, str]:
    return _given(
        {
            "X-Broker-Channel-Token": channel_token,
            "X-Broker-Producer-ID": producer,
            "X-Broker-Producer-Token": producer_token,
        }
    )


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a batch. With ``idempotent``, the same message under its id again is accepted."""

    payload: bytes
    content_type: str = "application/octet-stream"
    message_id: str | None = None
    idempotent: bool = False
    priority: int = 0
    ordering_key: str | None = None
    subject: str | None = None
    scheduled_for: str | None = None
    metadata: dict[str, str] = {}
    unique: dict[str, Any] | None = None


def publish_batch(
    channel: str,
    messages: Sequence[OutgoingMessage],
    *,
    channel_token: str = "",
    producer: str = "",
    producer_token: str = "",
) -> Call[list[dict[str, Any]]]:
    headers = _publisher(channel_token, producer, producer_token)
    for one in messages:
        _check_carried(one.metadata, one.content_type)
    given = [
        {
            "payload": base64.b64encode(one.payload).decode(),
            "encoding": "base64",
            "content_type": one.content_type,
            "id": one.message_id,
            "idempotent": one.idempotent,
            "priority": one.priority,
            "ordering_key": one.ordering_key,
            "subject": one.subject,
            "scheduled_for": one.scheduled_for,
            "headers": one.metadata,
            "unique": one.unique,
        }
        for one in messages
    ]
    content = as_json({"messages": given})
    path = path_of("v2", "channel", channel, "messages", "batch")
    return Call("POST", path, _published, headers, content)


def _published(answer: ServiceAnswer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mapping(answer)["messages"]
    return found


def queue_path(channel: str, consumer: str) -> str:
    return path_of("v2", "channel", channel, "consumer", consumer)


def claim(
    channel: str, consumer: str, tokens: Tokens, n: int, lease_s: float, wait_s: float
) -> Call[list[LeasedJob]]:
    body = {"max": n, "lease_seconds": lease_s, "wait_seconds": wait_s}
    path = queue_path(channel, consumer) + "/jobs/claim"
    content = as_json(body)
    return Call("POST", path, _leased, tokens.headers(), content, wait_s=wait_s)


def _leased(answer: ServiceAnswer) -> list[LeasedJob]:
    jobs = []
    for job in mapping(answer)["jobs"]:
        message = job.pop("message")
        text = message["payload"]
        payload = base64.b64decode(text) if message.get("encoding") == "base64" else text.encode()
        jobs.append(
            LeasedJob(
                id=job["id"],
                lease=job["lease"],
                deadline=datetime.fromisoformat(job["deadline"]),
                attempt=job["attempt"],
                priority=job["priority"],
                message_id=message["id"],
                payload=payload,
                content_type=message["content_type"],
                headers=message["headers"],
                ordering_key=message.get("ordering_key"),
            )
        )
    return jobs


def finish(
    channel: str,
    consumer: str,
    tokens: Tokens,
    what: str,
    jobs: Sequence[LeasedJob],
    each: Mapping[str, Any] | None = None,
    **all_of_them: Any,
) -> Call[list[ItemResult]]:
    """Complete, fail, release, or extend leased jobs; ``each`` is added to every item."""
    items = [{"id": job.id, "lease": job.lease, **(each or {})} for job in jobs]
    path = f"{queue_path(channel, consumer)}/jobs/{what}"
    content = as_json({"jobs": items, **all_of_them})
    # The status of the answer is that of a single item; the body has its result in any case.
    return Call("POST", path, _results, tokens.headers(), content, accept=(404, 409))


def heartbeat(
    channel: str,
    consumer: str,
    tokens: Tokens,
    jobs: Sequence[LeasedJob],
    lease_s: float,
    progress: Mapping[str, Progress],
) -> Call[list[ItemResult]]:
    """Extend leased jobs, and say how far those are whose ids ``progress`` has."""
    items: list[dict[str, Any]] = [
        {"id": job.id, "lease": job.lease}
        | ({"progress": progress[job.id]} if job.id in progress else {})
        for job in jobs
    ]
    path = f"{queue_path(channel, consumer)}/jobs/heartbeat"
    content = as_json({"jobs": items, "lease_seconds": lease_s})
    return Call("POST", path, _results, tokens.headers(), content, accept=(404, 409))


def _results(answer: ServiceAnswer) -> list[ItemResult]:
    # If the whole batch was rejected, the body is a problem without results.
    if answer.status >= 400 and b'"results"' not in answer.content[:20]:
        raise problem_of(answer.status, answer.content, answer.headers.get("retry-after"))
    return msgspec.json.decode(answer.content, type=_Results).results
