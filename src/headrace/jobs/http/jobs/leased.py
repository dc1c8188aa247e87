"""The leased API: claim in batches, finish under the lease, one result per item; how far a job is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ....web.asgi import has_left
from ... import ids, limits
from ...errors import bad_request
from ...models import ClaimedJob, Consumer, payload_fields, rfc3339
from ...runtime.runtime import Runtime
from ...service import leases
from ...service.leases import Caller, Claim, Ending, Endings
from ...states import State
from ...store import Row, Tx
from .. import shapes
from ..request.access import key_of
from ..request.endpoint import CONSUMER_TOKENS, Endpoint, reply
from ..request.incoming import consumer_tokens, read_json, seconds_between

__all__ = ["ENDPOINTS", "progress_of"]


class _Stored(msgspec.Struct, frozen=True):
    done: float | None
    note: str
    at_us: int


def _check_progress(told: shapes.ProgressBody) -> None:
    """Refuse a share that is none, a note that is too long, and progress that says nothing (400)."""
    if told.done is not None and not 0 <= told.done <= 1:
        raise bad_request("invalid_number", "a share of the work is 0 to 1", "jobs.progress.done")
    if len(told.note) > limits.PROGRESS_NOTE_CHARS_MAX:
        most = limits.PROGRESS_NOTE_CHARS_MAX
        raise bad_request(
            "invalid_text", f"at most {most} characters are accepted", "jobs.progress.note"
        )
    if told.done is None and not told.note:
        raise bad_request("invalid_progress", "give `done`, `note`, or both", "jobs.progress")


def _stored_progress(told: shapes.ProgressBody, now: int) -> str:
    """Encode it as it is stored with the job."""
    return msgspec.json.encode(_Stored(told.done, told.note, now)).decode()


def progress_of(row: Row) -> shapes.Progress | None:
    """Read what a job's worker said last; of the attempt that runs, not of one before."""
    if row["progress"] is None:
        return None
    told = msgspec.json.decode(row["progress"], type=_Stored)
    if row["state"] == State.INFLIGHT and told.at_us < (row["lease_started_us"] or 0):
        return None
    return shapes.Progress(told.done, told.note, rfc3339(told.at_us))


Item = TypeVar("Item", shapes.HeldBody, shapes.BeatBody, shapes.FailureBody)


def _caller(request: Request) -> Caller:
    path = request.path_params
    tokens, granted = consumer_tokens(request), key_of(request) is not None
    return Caller(path["channelId"], path["consumerId"], *tokens, granted=granted)


async def claim(runtime: Runtime, request: Request) -> Response:
    body = await read_json(request, shapes.ClaimBody)
    if not 1 <= body.max <= limits.CLAIM_MAX:
        raise bad_request("invalid_number", f"1 to {limits.CLAIM_MAX} jobs at once", "max")
    lease_s = seconds_between(body.lease_seconds, 1, limits.LEASE_S_MAX, "lease_seconds")
    wait_s = seconds_between(body.wait_seconds, 0, limits.WAIT_S_MAX, "wait_seconds")

    caller = _caller(request)

    async def again() -> tuple[Consumer, list[ClaimedJob]]:
        # The consumer is looked up each time: its token or type may change while a client waits.
        return await runtime.claim(Claim(caller.consumer, body.max, lease_s))

    consumer, jobs = await again()
    if jobs and has_left(request.scope):  # while its jobs were claimed
        await runtime.give_back(consumer, jobs)
    elif not jobs and wait_s:
        jobs = await runtime.claim_or_wait(again, consumer.seq, wait_s, partial(_left, request))
    return reply(shapes.LeasedJobs([_leased(job) for job in jobs]))


async def _left(request: Request) -> None:
    """Returns when the client has gone. Its body has been read: nothing else comes from it."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _leased(job: ClaimedJob) -> shapes.LeasedJob:
    payload, encoding = payload_fields(job.payload)
    return shapes.LeasedJob(
        id=str(job.seq),
        lease=job.lease,
        deadline=rfc3339(job.deadline_us),
        attempt=job.attempt,
        priority=job.priority,
        message=shapes.LeasedMessage(
            id=job.message_id,
            payload=payload,
            content_type=job.content_type,
            headers=job.headers,
            encoding=encoding,
            ordering_key=job.ordering_key,
        ),
    )


async def heartbeat(runtime: Runtime, request: Request) -> Response:
    body = await read_json(request, shapes.HeartbeatBody)
    lease_s = seconds_between(body.lease_seconds, 1, limits.LEASE_S_MAX, "lease_seconds")
    for item in body.jobs:
        if item.progress is not None:
            _check_progress(item.progress)
    caller = _caller(request)

    async def beat(named: Sequence[shapes.BeatBody]) -> tuple[Consumer, list[leases.Result]]:
        def write(tx: Tx) -> tuple[Consumer, list[leases.Result]]:
            consumer, now = caller.holder(tx), tx.now_us()
            held = [_beaten(item, now) for item in named]
            return consumer, leases.heartbeat(tx, consumer, held, lease_s, now) if held else []

        return await runtime.database.write(write)

    return await _answer(runtime, body.jobs, None, beat)


async def complete(runtime: Runtime, request: Request) -> Response:
    body = await read_json(request, shapes.CompleteBody)
    return await _end(
        runtime, request, body.jobs, "delivered", lambda item: leases.completed(_held(item))
    )


async def release(runtime: Runtime, request: Request) -> Response:
    body = await read_json(request, shapes.ReleaseBody)
    delay_s = seconds_between(body.delay_seconds, 0, limits.RETRY_DELAY_S_MAX, "delay_seconds")
    return await _end(
        runtime, request, body.jobs, "released", lambda item: leases.released(_held(item), delay_s)
    )


async def fail(runtime: Runtime, request: Request) -> Response:
    body = await read_json(request, shapes.FailBody)
    for item in body.jobs:
        if item.retry_in_seconds is not None:
            seconds_between(item.retry_in_seconds, 0, limits.RETRY_DELAY_S_MAX, "retry_in_seconds")

    def ending(item: shapes.FailureBody) -> Ending:
        return leases.failed(
            _held(item), item.reason, retry_in_s=item.retry_in_seconds, dead=item.dead
        )

    return await _end(runtime, request, body.jobs, "failed", ending)


def _held(item: shapes.HeldBody | shapes.FailureBody) -> leases.Held:
    return leases.Held(ids.job_number(item.id), item.lease)


def _beaten(item: shapes.BeatBody, now: int) -> leases.Held:
    told = None if item.progress is None else _stored_progress(item.progress, now)
    return leases.Held(ids.job_number(item.id), item.lease, told)


def _refusal(item: shapes.HeldBody | shapes.FailureBody) -> leases.Result | None:
    """The result of an item that names no job, or no lease, that could exist."""
    if not ids.is_job_number(item.id):
        return leases.Result(0, 404, "not_found")
    if not item.lease.isascii() or not item.lease.isprintable():
        return leases.Result(int(item.id), 409, "invalid_lease")
    return None


async def _end(
    runtime: Runtime,
    request: Request,
    items: Sequence[Item],
    outcome: str,
    ending: Callable[[Item], Ending],
) -> Response:
    """End the items that name a job; what others ask at the same time goes with it."""
    caller = _caller(request)

    async def ask(named: Sequence[Item]) -> tuple[Consumer, list[leases.Result]]:
        return await runtime.end(
            Endings(caller.holder, [ending(item) for item in named], runtime.random)
        )

    return await _answer(runtime, items, outcome, ask)


async def _answer(
    runtime: Runtime,
    items: Sequence[Item],
    outcome: str | None,
    ask: Callable[[Sequence[Item]], Awaitable[tuple[Consumer, list[leases.Result]]]],
) -> Response:
    """Ask for the items that name a job, and answer each of them in its place."""
    leases.check_batch(len(items))
    refusals = [_refusal(item) for item in items]
    named = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
    if len({item.id for item in named}) != len(named):
        raise bad_request("job_twice", "a job may be named once in a batch", "jobs")

    consumer, carried_out = await ask(named)
    following = iter(carried_out)
    results = [next(following) if refusal is None else refusal for refusal in refusals]
    if outcome is not None:
        runtime.count_results(consumer, outcome, results)
    shown = [_result(item.id, result) for item, result in zip(items, results, strict=True)]
    # A batch is carried out item by item; a single item determines the status of the answer.
    status = shown[0].status if len(shown) == 1 else 200
    return reply(shapes.ItemResults(shown), status)


def _result(job_id: str, result: leases.Result) -> shapes.ItemResult:
    return shapes.ItemResult(
        id=job_id,
        status=result.status,
        code=result.code,
        message=leases.describe(result),
        state=None if result.state is None else result.state.name,
        at=leases.deadline_text(result.due_us),
    )


_BASE: Final = "/v2/channel/{channelId}/consumer/{consumerId}/jobs"

ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path=f"{_BASE}/claim",
        handler=claim,
        summary="Lease up to `max` jobs; waits up to `wait_seconds` for the first",
        body=shapes.ClaimBody,
        answers={200: shapes.LeasedJobs},
        tokens=CONSUMER_TOKENS,
        tag="leases",
        errors=(412,),
    ),
    *(
        Endpoint(
            method="POST",
            path=f"{_BASE}/{name}",
            handler=handler,
            summary=summary,
            body=body,
            answers={200: shapes.ItemResults, 404: shapes.ItemResults, 409: shapes.ItemResults},
            tokens=CONSUMER_TOKENS,
            tag="leases",
        )
        for name, handler, body, summary in (
            ("heartbeat", heartbeat, shapes.HeartbeatBody, "Move the deadlines of held jobs"),
            ("complete", complete, shapes.CompleteBody, "Finish held jobs"),
            ("fail", fail, shapes.FailBody, "Give held jobs up, for now or for good"),
            ("release", release, shapes.ReleaseBody, "Give held jobs back, not counted as a retry"),
        )
    ),
)
