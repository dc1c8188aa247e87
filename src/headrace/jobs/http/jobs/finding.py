"""The jobs of a channel: found, cancelled, and replayed by message or by time, at a rate, after a dry run."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import bad_request
from ...matching.payloads import check_paths, read_paths
from ...models import Consumer, rfc3339
from ...runtime import counting
from ...runtime.runtime import Runtime
from ...service import finding, page_reads, replaying
from ...service.definitions import channels, consumers
from ...service.finding import Cancelled, Filter
from ...service.replaying import Replayed, Wanted
from ...states import TERMINAL, Hold, State
from ...store import Row, Tx
from .. import shapes
from ..request.access import recorded
from ..request.endpoint import CHANNEL_TOKENS, CONSUMER_TOKENS, CURSORS, Endpoint, Parameter, reply
from ..request.incoming import (
    consumer_tokens,
    is_admin,
    list_links,
    moment_us,
    number_between,
    paging,
    read_json,
    require_admin,
    require_reader,
    seconds_between,
)
from ..shapes import Blocker, Progress
from .leased import progress_of

__all__ = ["ENDPOINTS", "blocked_by"]


class FoundJob(msgspec.Struct):
    id: str
    consumer: str
    message: str
    state: str
    waits_for: str | None
    blocked_by: Blocker | None
    priority: int
    retries: int
    claims: int
    created_at: str
    changed_at: str
    due_at: str | None
    last_error: str | None
    cancelled_at: str | None
    progress: Progress | None
    url: str


class FoundJobs(msgspec.Struct):
    jobs: list[FoundJob]
    pages: dict[str, str]


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    job: str | None = None
    consumer: str | None = None
    message: str | None = None
    states: list[str] = []
    older_than_seconds: float = 0.0
    payload: dict[str, tuple[str, ...]] = {}
    dry_run: bool = False


class CancelledJobs(msgspec.Struct):
    waiting: int
    running: int
    consumers: dict[str, int]
    dry_run: bool


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    consumer: str | None = None
    messages: list[str] = []
    states: list[str] = []
    since: str | None = None
    until: str | None = None
    payload: dict[str, tuple[str, ...]] = {}
    rate_per_s: float = 0.0
    dry_run: bool = False


class ReplayedJobs(msgspec.Struct):
    delivered: int
    dead: int
    consumers: dict[str, int]
    last_due_at: str | None
    dry_run: bool


_AGE_S_MAX: Final = 100 * 366 * 86_400
_UNFINISHED: Final = (State.QUEUED, State.INFLIGHT)
_BEGIN: Final = page_reads.Paging().at


async def find_jobs(runtime: Runtime, request: Request) -> Response:
    query, channel_id = request.query_params, request.path_params["channelId"]
    age_s = number_between(query.get("older_than_seconds"), 0, 0, _AGE_S_MAX, "older_than_seconds")
    states = _states(query.getlist("state"), tuple(State))
    given = {name: query[name] for name in ("consumer", "message") if query.get(name)}
    for name, value in given.items():
        ids.check_id(value, name)
    if query.get("state"):
        given["state"] = ",".join(state.name for state in states)
    if age_s:
        given["older_than_seconds"] = str(age_s)
    texts = query.getlist("payload")
    payload = read_paths(texts, "payload")
    scope = f"jobs {channel_id} {sorted(given.items())} {sorted(texts) if texts else ''}".strip()

    def read(tx: Tx) -> tuple[finding.JobRows, page_reads.Page]:
        channel = require_reader(runtime, request, tx)
        asked = paging(runtime, request, scope)
        wanted = Filter(
            given.get("consumer"),
            given.get("message"),
            states,
            tx.now_us() - age_s * 1_000_000 if age_s else None,
            payload,
        )
        found = finding.find(tx, channel["seq"], wanted, asked, limits.PAGE_SIZE)
        if payload:
            return found, page_reads.page_until(runtime.cursors, scope, found.rows, asked, found.at)
        return found, page_reads.page_of(runtime.cursors, scope, found.rows)

    found, page = await runtime.database.read(read)
    base = f"/v2/channel/{channel_id}/consumer"
    shown = [
        _shown(row, found.consumers[row["consumer_seq"]], base, found.blockers.get(row["seq"]))
        for row in found.rows
    ]
    kept = {**given, "payload": texts} if texts else given
    return reply(FoundJobs(shown, list_links(request.url.path, page, **kept)))


def _states(named: list[str], default: tuple[State, ...]) -> tuple[State, ...]:
    """The states of a comma separated list; 400 for any other word."""
    words = [word for text in named for word in text.split(",") if word]
    unknown = [word for word in words if word not in State.__members__]
    if unknown:
        raise bad_request("unknown_state", f"accepted are {', '.join(State.__members__)}", "state")
    return tuple(dict.fromkeys(State[word] for word in words)) or default


def _shown(row: Row, consumer_id: str, base: str, blocker: Row | None) -> FoundJob:
    waits = row["state"] == State.QUEUED
    return FoundJob(
        id=str(row["seq"]),
        consumer=consumer_id,
        message=row["message_id"],
        state=State(row["state"]).name,
        waits_for=Hold(row["hold"]).name if waits else None,
        blocked_by=blocked_by(blocker),
        priority=row["priority"],
        retries=row["retries"],
        claims=row["claims"],
        created_at=rfc3339(row["created_us"]),
        changed_at=rfc3339(row["changed_us"]),
        due_at=rfc3339(row["due_us"]) if waits else None,
        last_error=row["last_error"],
        cancelled_at=None if row["cancelled_us"] is None else rfc3339(row["cancelled_us"]),
        progress=progress_of(row),
        url=f"{base}/{consumer_id}/job/{row['seq']}",
    )


def blocked_by(blocker: Row | None) -> shapes.Blocker | None:
    """Show the job that has the ordering key which another one waits for."""
    if blocker is None:
        return None
    waits = blocker["state"] == State.QUEUED
    return shapes.Blocker(
        id=str(blocker["by_seq"]),
        state=State(blocker["state"]).name,
        due_at=rfc3339(blocker["due_us"]) if waits else None,
        last_error=blocker["last_error"],
    )


async def cancel_jobs(runtime: Runtime, request: Request) -> Response:
    if "x-broker-consumer-token" not in request.headers:
        require_admin(runtime, request)
    body = await read_json(request, CancelBody)
    states = _states(body.states, _UNFINISHED)
    if set(states) - set(_UNFINISHED):
        raise bad_request("unknown_state", "QUEUED and INFLIGHT can be cancelled", "states")
    age_s = seconds_between(body.older_than_seconds, 0, _AGE_S_MAX, "older_than_seconds")
    given = body.consumer or body.message or body.states or age_s or body.payload
    if body.job is None and not given:
        raise bad_request(
            "no_filter",
            "name a job, or a consumer, a message, states, an age or payloads; `states` with both is all",
            "body",
        )
    check_paths(body.payload, "payload")
    if body.job is not None and body.payload:
        raise bad_request("two_filters", "a job, or payloads, but not both", "payload")
    for name, value in (("consumer", body.consumer), ("message", body.message)):
        if value is not None:
            ids.check_id(value, name)
    job = None if body.job is None else ids.job_number(body.job)
    total, at = _Total(), _BEGIN
    until_us: int | None = None

    def carry_out(tx: Tx) -> tuple[Cancelled, int | None]:
        channel_seq, now = _canceller(runtime, request, tx, body.consumer), tx.now_us()
        until = (now - round(age_s * 1e6) if until_us is None else until_us) if age_s else None
        wanted = Filter(body.consumer, body.message, states, until, body.payload)
        if job is not None:
            return finding.cancel_job(
                tx, channel_seq, job, body.consumer, now, dry_run=body.dry_run
            ), until
        some = finding.count_some if body.dry_run else finding.cancel_some
        return some(tx, channel_seq, wanted, at, now), until

    following: int | None = at
    while following is not None:
        at = following
        begins = following == _BEGIN and not body.dry_run
        work = recorded(request, carry_out, _detail(body)) if begins else carry_out
        cancelled, until_us = await runtime.in_turn(work)
        total.add(cancelled)
        following = cancelled.at
        if not body.dry_run:
            counting.count_cancelled(
                runtime.metrics, request.path_params["channelId"], cancelled.waiting
            )
    if total.count and not body.dry_run:
        detail = (
            f"{total.waiting.total()} waiting and {total.running.total()} running jobs cancelled"
        )
        channel_id = request.path_params["channelId"]
        await runtime.tell("jobs_cancelled", channel_id, body.consumer, detail)
    return reply(
        CancelledJobs(
            waiting=total.waiting.total(),
            running=total.running.total(),
            consumers=dict(sorted((total.waiting + total.running).items())),
            dry_run=body.dry_run,
        )
    )


def _detail(body: CancelBody | ReplayBody) -> str:
    """Say which jobs were meant, for the audit log, which has nothing of payloads but the paths."""
    wanted = {**msgspec.to_builtins(body), "payload": " ".join(sorted(body.payload))}
    return ", ".join(f"{name}: {value}" for name, value in wanted.items() if value)


class _Total:
    """The slices together."""

    def __init__(self) -> None:
        self.waiting, self.running = Counter[str](), Counter[str]()

    def add(self, cancelled: Cancelled) -> None:
        self.waiting.update(cancelled.waiting)
        self.running.update(cancelled.running)

    @property
    def count(self) -> int:
        return self.waiting.total() + self.running.total()


def _canceller(runtime: Runtime, request: Request, tx: Tx, consumer: str | None) -> int:
    """The channel, for an administrator, or for whoever has the tokens of the consumer that is named."""
    channel_id = request.path_params["channelId"]
    if not is_admin(runtime, request):
        if consumer is None:
            raise bad_request(
                "consumer_missing", "without the admin token, name the consumer", "consumer"
            )
        consumers.authorised_consumer(tx, channel_id, consumer, *consumer_tokens(request))
    return int(require_reader(runtime, request, tx)["seq"])


_FILTERS: Final = (
    Parameter("consumer", "jobs of this consumer"),
    Parameter("message", "jobs of this message"),
    Parameter("state", "QUEUED, INFLIGHT, DELIVERED, DEAD; several separated by commas"),
    Parameter("older_than_seconds", "jobs made at least so long ago", type="integer"),
    Parameter(
        "payload", "PATH=PATTERN, such as $.order.id=7: of messages with this value; repeatable"
    ),
    *CURSORS,
)


_NAMES: Final = tuple(sorted(state.name for state in TERMINAL))


async def replay(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, ReplayBody)
    channel_id = request.path_params["channelId"]
    _check(body)
    chosen, wanted = await runtime.database.read(lambda tx: _chosen(tx, channel_id, body))
    states, named, done, told = Counter[State](), Counter[str](), 0, False
    for consumer in chosen:
        after: int | None = None
        while True:

            def work(
                tx: Tx, consumer: Consumer = consumer, after: int | None = after, done: int = done
            ) -> Replayed:
                return _slice(tx, consumer, body, wanted, after, done)

            is_told = told or body.dry_run
            slice_ = await runtime.in_turn(
                work if is_told else recorded(request, work, _detail(body))
            )
            told = True
            done += slice_.count
            states.update(slice_.states)
            named[consumer.consumer_id] += slice_.count
            after = slice_.at
            if after is None:
                break
    if done and not body.dry_run:
        detail = f"{done} jobs are handed out again"
        await runtime.tell("jobs_replayed", channel_id, body.consumer, detail)
    return reply(
        ReplayedJobs(
            delivered=states[State.DELIVERED],
            dead=states[State.DEAD],
            consumers={name: count for name, count in sorted(named.items()) if count},
            last_due_at=rfc3339(wanted.due_us(done - 1)) if done else None,
            dry_run=body.dry_run,
        )
    )


def _check(body: ReplayBody) -> None:
    if not body.messages and body.since is None:
        raise bad_request(
            "no_filter", "name messages, or a time `since` which jobs were made", "body"
        )
    if body.messages and (body.since is not None or body.until is not None):
        raise bad_request("two_filters", "messages, or times, but not both", "messages")
    if body.messages and body.payload:
        raise bad_request("two_filters", "messages, or payloads, but not both", "payload")
    check_paths(body.payload, "payload")
    if len(body.messages) > limits.BATCH_MAX:
        raise bad_request("invalid_batch", f"at most {limits.BATCH_MAX} messages", "messages")
    for message in body.messages:
        ids.check_id(message, "messages")
    if len(set(body.messages)) != len(body.messages):
        raise bad_request("message_twice", "a message may be named once", "messages")
    if unknown := set(body.states) - set(_NAMES):
        raise bad_request(
            "unknown_state", f"accepted are {', '.join(_NAMES)}, not {min(unknown)}", "states"
        )
    if not 0 <= body.rate_per_s <= 1e6 or 0 < body.rate_per_s < 0.001:
        raise bad_request(
            "invalid_rate", "0 (all at once), or 0.001 to 1000000 jobs per second", "rate_per_s"
        )
    if body.consumer is not None:
        ids.check_id(body.consumer, "consumer")


def _chosen(tx: Tx, channel_id: str, body: ReplayBody) -> tuple[list[Consumer], Wanted]:
    channel, now = channels.find_channel(tx, channel_id), tx.now_us()
    names = (
        [body.consumer]
        if body.consumer is not None
        else sorted(
            row["consumer_id"]
            for row in tx.all("list_consumers_of_channel", channel_seq=channel.seq)
        )
    )
    until_us = now if body.until is None else min(now, moment_us(body.until, "until"))
    wanted = Wanted(
        states=tuple(State[name] for name in body.states or _NAMES),
        from_us=0 if body.since is None else moment_us(body.since, "since"),
        until_us=until_us,
        begin_us=now,
        rate_per_s=body.rate_per_s,
        dry_run=body.dry_run,
        payload=body.payload,
    )
    return [consumers.find_consumer(tx, channel_id, name) for name in names], wanted


def _slice(
    tx: Tx,
    consumer: Consumer,
    body: ReplayBody,
    wanted: Wanted,
    after: int | None,
    done: int,
) -> Replayed:
    now = tx.now_us()
    if body.messages:
        return replaying.replay_messages(tx, consumer, body.messages, wanted, done, now)
    return replaying.replay_some(tx, consumer, wanted, after, done, now)


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v2/channel/{channelId}/jobs",
        handler=find_jobs,
        summary="The jobs of a channel, of push and pull consumers, newest first",
        answers={200: FoundJobs},
        parameters=_FILTERS,
        tokens=CHANNEL_TOKENS,
        admin=True,
        tag="jobs",
    ),
    Endpoint(
        method="POST",
        path="/v2/channel/{channelId}/jobs/cancel",
        handler=cancel_jobs,
        summary="Cancel a job, or all that are waiting or running and match",
        body=CancelBody,
        answers={200: CancelledJobs},
        tokens=CONSUMER_TOKENS,
        admin=True,
        scopes=("operate",),
        audited=True,
        tag="jobs",
        errors=(409,),
    ),
    Endpoint(
        method="POST",
        path="/v2/channel/{channelId}/replay",
        handler=replay,
        summary="Hand out delivered and dead jobs again, by message or by time",
        body=ReplayBody,
        answers={200: ReplayedJobs},
        tag="jobs",
        admin=True,
        scopes=("operate",),
        audited=True,
    ),
)
