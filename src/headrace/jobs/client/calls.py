"""What a client says and how it reads the answers; both clients carry out the same calls. No I/O."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ..errors import JobsError

__all__ = ["Call", "ItemResult", "LeasedJob", "Tokens", "problem_of"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and what its answer means."""

    method: str
    path: str
    parse: Callable[[bytes], T]
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    timeout_s: float = 30.0
    accept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a pull consumer shows."""

    channel_token: str = field(repr=False)
    consumer_token: str = field(repr=False)

    def headers(self) -> dict[str, str]:
        return {
            "X-Broker-Channel-Token": self.channel_token,
            "X-Broker-Consumer-Token": self.consumer_token,
        }


class LeasedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job. ``lease`` is what finishes it; ``attempt`` counts claims, beginning with 1."""

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


class ItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one item: ``ok``, ``lease_lost``, ``lease_ceiling`` or ``not_found``."""

    id: str
    status: int
    code: str
    message: str | None = None
    state: str | None = None
    at: datetime | None = None


class _Results(msgspec.Struct):
    results: list[ItemResult]


def problem_of(status: int, content: bytes, retry_after: str | None) -> JobsError:
    """The error that an answer tells."""
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        code, message = str(document["code"]), str(document["message"])
    except (msgspec.DecodeError, KeyError):
        code, message, document = "refused", content.decode("utf-8", "replace")[:500], {}
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    return JobsError(status, code, message, document.get("field"), retry_after_s=seconds)


def decode(content: bytes) -> Any:
    return msgspec.json.decode(content)


def nothing(content: bytes) -> None:
    del content


def form_of(**fields: str | int | None) -> bytes:
    return urlencode({name: value for name, value in fields.items() if value is not None}).encode()


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def path_of(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def put_definition(path: str, content: bytes, etag: str | None) -> Call[dict[str, Any]]:
    headers = {**FORM, **({"If-Match": etag} if etag else {})}
    # An empty form is a form, too; the service looks at the media type.
    return Call("PUT", path, decode, headers, content or b"name=")


def publish(
    channel: str,
    payload: bytes,
    *,
    channel_token: str,
    producer: str,
    producer_token: str,
    content_type: str,
    message_id: str | None,
    priority: int,
    ordering_key: str | None,
    scheduled_for: str | None,
    metadata: Mapping[str, str],
    idempotent: bool,
) -> Call[dict[str, Any]]:
    headers = {
        **metadata,
        "X-Broker-Channel-Token": channel_token,
        "X-Broker-Producer-ID": producer,
        "X-Broker-Producer-Token": producer_token,
        "X-Broker-Message-Priority": str(priority),
        "Content-Type": content_type,
    }
    optional = {
        "Idempotency-Key" if idempotent else "X-Broker-Message-ID": message_id,
        "X-Broker-Ordering-Key": ordering_key,
        "X-Broker-Scheduled-For": scheduled_for,
        "X-Broker-Metadata-Headers": ",".join(metadata) or None,
    }
    headers |= {name: value for name, value in optional.items() if value is not None}
    return Call("POST", path_of("v2", "channel", channel, "messages"), decode, headers, payload)


def claim(
    base: str, tokens: Tokens, n: int, lease_s: float, wait_s: float
) -> Call[list[LeasedJob]]:
    body = {"max": n, "lease_seconds": lease_s, "wait_seconds": wait_s}
    return Call(
        "POST",
        f"{base}/jobs/claim",
        _leased,
        tokens.headers(),
        msgspec.json.encode(body),
        30.0 + wait_s,
    )


def _leased(content: bytes) -> list[LeasedJob]:
    jobs = []
    for job in decode(content)["jobs"]:
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


def batch(
    base: str, tokens: Tokens, what: str, items: Sequence[Mapping[str, Any]], **more: Any
) -> Call[list[ItemResult]]:
    body = msgspec.json.encode({"jobs": items, **more})
    # The answer to a single item has its status; what became of it is in the body all the same.
    return Call("POST", f"{base}/jobs/{what}", _results, tokens.headers(), body, accept=(404, 409))


def _results(content: bytes) -> list[ItemResult]:
    return msgspec.json.decode(content, type=_Results).results


def held(jobs: Sequence[LeasedJob]) -> list[dict[str, str]]:
    return [{"id": job.id, "lease": job.lease} for job in jobs]
