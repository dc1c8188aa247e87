"""The calls that define producers, channels, consumers and API keys, and manage their jobs. No I/O."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from ...retries import Patience
from ..errors import JobsError
from .calls import Call, ServiceAnswer, Tokens, as_form, as_json, mapping, path_of, queue_path

__all__ = ["ListPage"]


_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_PASSING: Final = frozenset({"moving", "running"})
_OF_SCHEDULE: Final = frozenset({"time_zone", "missed", "paused"})
_AGAIN_S: Final = 0.5  # a slice of what is moved takes about as long
_LONG_S: Final = 600.0  # for calls about all dead jobs


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list, and the path of the next page, if there is one."""

    items: list[dict[str, Any]]
    next: str | None


def _page(name: str, pages: str = "pages") -> Callable[[ServiceAnswer], ListPage]:
    """Read the list of this name, and the links that stand beside it."""

    def read(answer: ServiceAnswer) -> ListPage:
        page = mapping(answer)
        return ListPage(page[name], page[pages].get("next"))

    return read


# Definitions


def patience(wait_s: float, clock: Callable[[], float]) -> Patience:
    """Make the patience with a refusal that ends by itself: jobs run, or are on their way."""
    return Patience(wait_s, clock, _AGAIN_S, _AGAIN_S)


def pause_s(
    patience: Patience, error: JobsError, on_wait: Callable[[JobsError], object] | None
) -> float:
    """Seconds until it is asked again. Raises ``error`` if it is not to be waited for, or any longer.

    Args:
        on_wait: called with each refusal that is waited for.
    """
    if error.status != 409 or error.code not in _PASSING:
        raise error
    seconds = patience.pause_s(error)
    if on_wait is not None:
        on_wait(error)
    return seconds


def etag(path: str) -> Call[str | None]:
    """The version of a definition; None if it does not exist yet."""
    return Call("GET", path, lambda answer: answer.headers.get("etag"), accept=(404,))


def define(path: str, version: str | None, **fields: str | int | None) -> Call[dict[str, Any]]:
    """Create or change the definition at ``path``, which must have this version."""
    headers = {**_FORM, **({"If-Match": version} if version else {})}
    # An empty form needs its media type, too: the service checks it.
    return Call("PUT", path, mapping, headers, _form(**fields) or b"name=")


class ConsumerChange(TypedDict, total=False):
    """Settings that ``patch_consumer`` may change; what is left out stays."""

    settings: Mapping[str, Any] | None
    """Its own settings, by name; those that are left out stay."""

    paused: bool
    """Whether it gets no jobs for now."""

    enable: bool
    """True: take it up again, after it was disabled because it failed for too long."""

    max_retries: int | None
    """Number of times that a job is tried again before it is dead."""

    dry_run: bool
    """True: change nothing. The answer's ``dying`` says how many unfinished jobs would die of their next
    failure by a lower ``max_retries``."""

    name: str
    """Name for people."""

    type: Literal["push", "pull"]
    """Whether jobs are sent to it, or it claims them."""

    callback_url: str | None
    """URL to which jobs are sent, if it is pushed to."""


def change(channel: str, consumer: str, fields: Mapping[str, Any]) -> Call[dict[str, Any]]:
    content = as_json(fields)
    return Call("PATCH", queue_path(channel, consumer), mapping, content=content)


def channel(channel: str) -> Call[dict[str, Any]]:
    return Call("GET", path_of("v2", "channel", channel), mapping)


def consumer(channel: str, consumer: str) -> Call[dict[str, Any]]:
    return Call("GET", queue_path(channel, consumer), mapping)


def drain(channel: str, *, draining: bool) -> Call[dict[str, Any]]:
    content = as_json({"draining": draining})
    return Call("PATCH", path_of("v2", "channel", channel), mapping, content=content)


def tell(channel: str, events_channel: str | None) -> Call[dict[str, Any]]:
    content = as_json({"events_channel": events_channel or ""})
    return Call("PATCH", path_of("v2", "channel", channel), mapping, content=content)


def remove(path: str, version: str | None, **query: str | None) -> Call[None]:
    """Delete the definition at ``path``, which must have this version; 404 if there is none."""
    given = _form(**query).decode()
    headers = {"If-Match": version or '"0"'}
    return Call("DELETE", f"{path}?{given}" if given else path, lambda answer: None, headers)


def new_secret(channel: str, consumer: str, *, keep_previous: bool) -> Call[str]:
    content = as_json({"keep_previous": keep_previous})
    return Call("POST", queue_path(channel, consumer) + "/secret", _secret, content=content)


def _secret(answer: ServiceAnswer) -> str:
    return str(mapping(answer)["secret"])


def new_token(channel: str, consumer: str, token: str | None, *, keep_previous: bool) -> Call[str]:
    content = as_json({"token": token, "keep_previous": keep_previous})
    return Call("POST", queue_path(channel, consumer) + "/token", _token, content=content)


def _token(answer: ServiceAnswer) -> str:
    return str(mapping(answer)["token"])


def _form(**fields: str | int | None) -> bytes:
    return as_form({name: value for name, value in fields.items() if value is not None}).encode()


# Operations


def status() -> Call[dict[str, Any]]:
    return Call("GET", "/_status", mapping)


def feeds(channel: str | None) -> Call[list[dict[str, Any]]]:
    path = "/v2/feeds" if channel is None else path_of("v2", "channel", channel, "feeds")
    return Call("GET", path, _feeds)


def _feeds(answer: ServiceAnswer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mapping(answer)["feeds"]
    return found


def feed_again(
    channel: str, feed: str, sequence: int | None, since: str | None
) -> Call[dict[str, Any]]:
    path = path_of("v2", "channel", channel, "feed", feed, "again")
    content = as_json({"sequence": sequence, "since": since})
    return Call("POST", path, mapping, content=content)


def events() -> Call[list[dict[str, Any]]]:
    return Call("GET", "/v2/events", _events)


def _events(answer: ServiceAnswer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mapping(answer)["events"]
    return found


def job(channel: str, consumer: str, job_id: str) -> Call[dict[str, Any]]:
    return Call("GET", queue_path(channel, consumer) + path_of("job", job_id), mapping)


def endpoint_calls(channel: str, consumer: str, last_s: float) -> Call[list[dict[str, Any]]]:
    path = f"{queue_path(channel, consumer)}/calls?seconds={math.ceil(last_s)}"
    return Call("GET", path, _slots)


def _slots(answer: ServiceAnswer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mapping(answer)["slots"]
    return found


def jobs_path(
    channel: str,
    consumer: str | None,
    message: str | None,
    states: Sequence[str],
    older_than_s: float,
    payload: Mapping[str, str | Sequence[str]] | None,
) -> str:
    given = {
        "consumer": consumer,
        "message": message,
        "state": ",".join(states) or None,
        "older_than_seconds": math.ceil(older_than_s) or None,
    }
    pairs = [(name, value) for name, value in given.items() if value is not None]
    for path, patterns in _patterns(payload).items():
        pairs += [("payload", f"{path}={pattern}") for pattern in patterns]
    query = as_form(pairs)
    return path_of("v2", "channel", channel, "jobs") + (f"?{query}" if query else "")


def jobs_page(path: str) -> Call[ListPage]:
    return Call("GET", path, _page("jobs"))


def _patterns(given: Mapping[str, str | Sequence[str]] | None) -> dict[str, Sequence[str]]:
    """List the patterns of each path; one may stand by itself."""
    return {
        path: [patterns] if isinstance(patterns, str) else list(patterns)
        for path, patterns in (given or {}).items()
    }


class JobsToCancel(TypedDict, total=False):
    """Filters of ``cancel_jobs``; one at least."""

    job: str | None
    """Job of this id alone."""

    consumer: str | None
    """Jobs of this consumer."""

    message: str | None
    """Jobs of this message."""

    states: Sequence[str]
    """QUEUED, INFLIGHT; both, if not given."""

    older_than_s: float
    """Jobs made so many seconds ago, or before."""

    payload: Mapping[str, str | Sequence[str]] | None
    """Jobs of messages with such values, by their paths: ``{"$.order.id": "7"}``; ``*`` is any text."""

    dry_run: bool
    """True: change nothing."""


class JobsToReplay(TypedDict, total=False):
    """Filters of ``replay_jobs``: by messages, or by a time."""

    consumer: str | None
    """Jobs of this consumer; of each, if not given."""

    messages: Sequence[str]
    """Jobs of these messages."""

    states: Sequence[str]
    """DELIVERED, DEAD; both, if not given."""

    since: str | None
    """Jobs made since then, RFC 3339."""

    until: str | None
    """Jobs made until then; until now, if not given."""

    payload: Mapping[str, str | Sequence[str]] | None
    """Jobs of messages with such values, by their paths: ``{"$.order.id": "7"}``; ``*`` is any text."""

    rate_per_s: float
    """Rate of jobs in a second; all at once, if not given."""

    dry_run: bool
    """True: change nothing."""


def cancel(channel: str, wanted: Mapping[str, Any]) -> Call[dict[str, Any]]:
    given = {
        "older_than_seconds" if name == "older_than_s" else name: each
        for name, each in wanted.items()
    }
    content = as_json({**given, "payload": _patterns(given.get("payload"))})
    path = path_of("v2", "channel", channel, "jobs", "cancel")
    return Call("POST", path, mapping, content=content, timeout_min_s=_LONG_S)


def replay(channel: str, wanted: Mapping[str, Any]) -> Call[dict[str, Any]]:
    content = as_json({**wanted, "payload": _patterns(wanted.get("payload"))})
    path = path_of("v2", "channel", channel, "replay")
    return Call("POST", path, mapping, content=content, timeout_min_s=_LONG_S)


# Schedules


class ScheduleOptions(TypedDict, total=False):
    """Fields of a schedule beside its pattern and its payload."""

    time_zone: str
    """Whose clock the pattern means, such as ``Europe/Berlin``; UTC, if not given."""

    missed: Literal["once", "all", "skip"]
    """Treatment of times at which no service ran: one message for all (if not given), each, none."""

    paused: bool
    """True: publish nothing until it is put again without."""

    content_type: str
    """``application/octet-stream``, if not given."""

    priority: int
    """Higher goes first; 0, if not given."""

    ordering_key: str | None
    """Jobs of one key are handed out one at a time, in order."""

    subject: str | None
    """Subject of the messages: the filters of consumers go by it."""

    metadata: Mapping[str, str]
    """Headers of the messages."""


def schedule_path(channel: str, schedule: str) -> str:
    return path_of("v2", "channel", channel, "schedule", schedule)


def put_schedule(
    channel: str, schedule: str, cron: str, payload: bytes, options: Mapping[str, Any]
) -> Call[dict[str, Any]]:
    of_message = {name: value for name, value in options.items() if name not in _OF_SCHEDULE}
    headers = of_message.pop("metadata", {})
    encoded = base64.b64encode(payload).decode()
    message = {"payload": encoded, "encoding": "base64", "headers": headers, **of_message}
    own = {name: value for name, value in options.items() if name in _OF_SCHEDULE}
    content = as_json({"cron": cron, "message": message, **own})
    return Call("PUT", schedule_path(channel, schedule), mapping, content=content)


def schedule(channel: str, schedule: str) -> Call[dict[str, Any]]:
    return Call("GET", schedule_path(channel, schedule), mapping)


def schedules(channel: str) -> Call[list[dict[str, Any]]]:
    return Call("GET", path_of("v2", "channel", channel, "schedules"), _schedules)


def _schedules(answer: ServiceAnswer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mapping(answer)["schedules"]
    return found


def remove_schedule(channel: str, schedule: str) -> Call[None]:
    return Call("DELETE", schedule_path(channel, schedule), lambda answer: None)


def dead_path(channel: str, consumer: str) -> str:
    return path_of("channel", channel, "consumer", consumer, "dlq")


def dead_page(path: str) -> Call[ListPage]:
    return Call("GET", path, _page("DeadJobs", "Pages"))


def requeue_dead(channel: str, consumer: str, consumer_token: str) -> Call[None]:
    content = _form(requeue=consumer_token)
    path = dead_path(channel, consumer)
    return Call("POST", path, lambda answer: None, _FORM, content, timeout_min_s=_LONG_S)


def purge_dead(channel: str, consumer: str, tokens: Tokens) -> Call[int]:
    path = dead_path(channel, consumer)
    return Call("DELETE", path, _deleted, tokens.headers(), timeout_min_s=_LONG_S)


def _deleted(answer: ServiceAnswer) -> int:
    return int(mapping(answer)["deletedCount"])


KEYS: Final = "/v2/keys"


def create_key(
    name: str, scopes: Sequence[str], channels: Sequence[str], expires_in_s: float | None
) -> Call[dict[str, Any]]:
    body = {
        "name": name,
        "scopes": list(scopes),
        "channels": list(channels),
        "expires_in_seconds": expires_in_s,
    }
    return Call("POST", KEYS, mapping, content=as_json(body))


def keys_page(path: str) -> Call[ListPage]:
    return Call("GET", path, _page("keys"))


def revoke_key(key: str) -> Call[None]:
    return Call("DELETE", path_of("v2", "key", key), lambda answer: None)


def audit_path(key: str | None, channel: str | None) -> str:
    given = {name: value for name, value in (("key", key), ("channel", channel)) if value}
    return "/v2/audit" + (f"?{as_form(given)}" if given else "")


def audit_page(path: str) -> Call[ListPage]:
    return Call("GET", path, _page("entries"))
