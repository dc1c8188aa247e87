"""Consumers by Headrace's own routes: settings, pause, signing secrets, jobs, how an endpoint answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import bad_request, not_found
from ...models import Consumer, ConsumerSettings, rfc3339, state_name
from ...retry_policy import with_kind
from ...runtime.runtime import Runtime
from ...service import finding, page_reads
from ...service.definitions import consumers
from ...service.push import call_statistics
from ...signature import new_secret
from ...states import Hold, State
from ...store import Row, Tx
from .. import shapes
from ..jobs.finding import blocked_by
from ..jobs.leased import progress_of
from ..request.access import recorded, require_scope
from ..request.endpoint import CONSUMER_TOKENS, Endpoint, Parameter, reply
from ..request.incoming import (
    consumer_tokens,
    is_admin,
    number_between,
    precondition,
    read_json,
    require_admin,
)
from .forms import refuse_inside

__all__ = ["ENDPOINTS"]


_OPERATED: Final = frozenset(
    {"paused", "enable", "dry_run"}
)  # what a key with `operate` may change


def _detail(consumer: Consumer, counts: dict[State, int], dying: int | None = None) -> Response:
    def at(us: int | None) -> str | None:
        return None if us is None else rfc3339(us)

    shape = shapes.ConsumerDetail(
        id=consumer.consumer_id,
        channel=consumer.channel_id,
        name=consumer.name,
        type=consumer.kind,
        callback_url=consumer.callback_url,
        max_retries=consumer.max_retries,
        settings=consumer.settings,
        paused=consumer.paused,
        disabled_at=at(consumer.disabled_us),
        disabled_reason=consumer.disabled_reason,
        failing_since=at(consumer.failing_since_us),
        changed_at=rfc3339(consumer.updated_us),
        jobs={state.name: counts.get(state, 0) for state in State},
        dying=dying,
    )
    return reply(shape, headers={"ETag": f'"{consumer.updated_us}"'})


async def get_consumer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path = request.path_params

    return _detail(
        *await runtime.database.read(lambda tx: _read(tx, path["channelId"], path["consumerId"]))
    )


def _read(tx: Tx, channel_id: str, consumer_id: str) -> tuple[Consumer, dict[State, int]]:
    consumer = consumers.find_consumer(tx, channel_id, consumer_id)
    return consumer, page_reads.counts_of(tx, consumer.seq)


async def patch_consumer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, shapes.ConsumerPatch)
    path = request.path_params
    if set(_given(body)) - _OPERATED:
        require_scope(request, "admin", path["channelId"])
    change = consumers.ConsumerChange(
        name=body.name,
        kind=body.type,
        callback_url=body.callback_url,
        max_retries=body.max_retries,
        paused=body.paused,
        enable=body.enable,
    )
    change.check()
    refuse_inside(runtime, body.callback_url)
    conditional = "if-match" in request.headers or "if-unmodified-since" in request.headers
    condition = precondition(request) if conditional else None
    channel_id, consumer_id = path["channelId"], path["consumerId"]
    lowers = body.max_retries is not None

    def decide(present: Consumer) -> consumers.ConsumerChange:
        if body.settings is None:
            return change
        return replace(change, settings=_merged(present.settings, body.settings))

    def read(tx: Tx) -> tuple[Consumer, dict[State, int], int]:
        present, counts = _read(tx, channel_id, consumer_id)
        if condition is not None and body.dry_run:
            condition.check(present.updated_us)
        decide(present).check()
        return present, counts, consumers.count_dying(tx, present, change)

    if body.dry_run:
        present, counts, dying = await runtime.database.read(read)
        return _detail(present, counts, dying if lowers else None)

    def write(tx: Tx) -> tuple[Consumer, dict[State, int], int]:
        found = 0

        def decide_and_count(present: Consumer) -> consumers.ConsumerChange:
            nonlocal found
            found = consumers.count_dying(tx, present, change)
            return decide(present)

        consumers.change_consumer(
            tx, channel_id, consumer_id, decide_and_count, condition, tx.now_us()
        )
        return *_read(tx, channel_id, consumer_id), found

    changed, counts, dying = await runtime.database.write(
        recorded(request, write, f"{', '.join(_given(body))}")
    )
    return _detail(changed, counts, dying if lowers else None)


def _given(body: shapes.ConsumerPatch) -> list[str]:
    """The names of what is to be changed."""
    default = shapes.ConsumerPatch()
    names = shapes.ConsumerPatch.__struct_fields__
    return [name for name in names if getattr(body, name) != getattr(default, name)]


def _merged(present: ConsumerSettings, given: dict[str, object]) -> ConsumerSettings:
    """The settings with the given ones replaced, and None for those as they are without; of nested ones but
    the filter, which is one thing, each is replaced by itself.
    """
    merged = msgspec.to_builtins(present)
    default = msgspec.to_builtins(ConsumerSettings())
    for name, value in given.items():
        if value is None and name in default:
            merged[name] = default[name]
        elif isinstance(merged.get(name), dict) and isinstance(value, dict):
            unknown = value.keys() - merged[name].keys()
            if unknown:
                raise bad_request(
                    "unknown_setting",
                    f"accepted are {sorted(merged[name])}",
                    f"{name}.{min(unknown)}",
                )
            kept = {} if name == "filter" else merged[name]
            merged[name] = {**kept, **(with_kind(value) if name == "retry" else value)}
        else:
            merged[name] = value
    try:
        return msgspec.convert(merged, ConsumerSettings)
    except msgspec.ValidationError as error:
        raise bad_request("invalid_settings", str(error), "settings") from None


async def rotate_secret(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, shapes.RotateBody, may_be_empty=True)
    secret = new_secret()

    def decide(present: Consumer) -> consumers.ConsumerChange:
        previous = present.secrets[:1] if body.keep_previous else ()
        return consumers.ConsumerChange(secrets=(secret, *previous))

    changed = await _change(runtime, request, decide)
    return reply(shapes.Secret(secret, len(changed.secrets)))


async def _change(
    runtime: Runtime, request: Request, decide: Callable[[Consumer], consumers.ConsumerChange]
) -> Consumer:
    path = request.path_params

    def write(tx: Tx) -> Consumer:
        return consumers.change_consumer(
            tx, path["channelId"], path["consumerId"], decide, None, tx.now_us()
        )

    return await runtime.database.write(recorded(request, write))


async def rotate_token(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, shapes.TokenBody, may_be_empty=True)
    token = body.token or ids.new_token()

    def decide(present: Consumer) -> consumers.ConsumerChange:
        previous = present.token if body.keep_previous and present.token != token else ""
        return consumers.ConsumerChange(token=token, previous_token=previous)

    changed = await _change(runtime, request, decide)
    return reply(shapes.Token(token, 1 + (changed.previous_token is not None)))


async def get_job(runtime: Runtime, request: Request) -> Response:
    path = request.path_params
    seq = ids.job_number(path["jobId"])

    def read(tx: Tx) -> tuple[Row, list[Row], Row | None]:
        if is_admin(runtime, request):
            consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        else:
            consumer = consumers.authorised_consumer(
                tx, path["channelId"], path["consumerId"], *consumer_tokens(request)
            )
        row, attempts = page_reads.get_job(tx, seq)
        if row["consumer_seq"] != consumer.seq:
            raise not_found("job", "jobId")
        return row, list(attempts), finding.blockers_of(tx, [row]).get(seq)

    row, attempts, blocker = await runtime.database.read(read)
    expires = row["lease_expires_us"]
    return reply(
        shapes.JobDetail(
            id=str(row["seq"]),
            channel=row["channel_id"],
            consumer=row["consumer_id"],
            message=row["message_id"],
            state=state_name(row["state"]),
            priority=row["priority"],
            retries=row["retries"],
            claims=row["claims"],
            changed_at=rfc3339(row["changed_us"]),
            due_at=rfc3339(row["due_us"]),
            lease_expires_at=None if expires is None else rfc3339(expires),
            last_error=row["last_error"],
            waits_for=Hold(row["hold"]).name if row["state"] == State.QUEUED else None,
            blocked_by=blocked_by(blocker),
            progress=progress_of(row),
            attempts=[
                shapes.Attempt(
                    number=attempt["number"],
                    kind=attempt["kind"],
                    started_at=rfc3339(attempt["started_us"]),
                    duration_seconds=attempt["duration_us"] / 1e6,
                    status=attempt["status"],
                    error=attempt["error"],
                    excerpt=attempt["excerpt"],
                )
                for attempt in attempts
            ],
        )
    )


_BASE: Final = "/v2/channel/{channelId}/consumer/{consumerId}"


class CallSlot(msgspec.Struct):
    at: str
    calls: int
    failed: int
    p50_seconds: float
    p95_seconds: float


class Calls(msgspec.Struct):
    slot_seconds: int
    slots: list[CallSlot]


async def list_calls(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path, most = request.path_params, limits.CALLS_KEPT_S
    seconds = number_between(request.query_params.get("seconds"), most, 1, most, "seconds")

    def read(tx: Tx) -> list[call_statistics.Slot]:
        consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        return call_statistics.slots_of(tx, consumer.seq, seconds)

    shown = [
        CallSlot(rfc3339(slot.at_us), slot.calls, slot.failed, slot.p50_s, slot.p95_s)
        for slot in await runtime.database.read(read)
    ]
    return reply(Calls(limits.CALLS_SLOT_S, shown))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=_BASE,
        handler=get_consumer,
        summary="A consumer with its settings and counts",
        answers={200: shapes.ConsumerDetail},
        tag="consumers",
        admin=True,
    ),
    Endpoint(
        method="PATCH",
        path=_BASE,
        handler=patch_consumer,
        summary="Change settings, pause, resume, enable again; what is not given stays",
        body=shapes.ConsumerPatch,
        answers={200: shapes.ConsumerDetail},
        tag="consumers",
        admin=True,
        scopes=("operate",),
        audited=True,
        errors=(412,),
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/secret",
        handler=rotate_secret,
        summary="Make a new signing secret; the previous one signs too until the next rotation",
        body=shapes.RotateBody,
        body_may_be_empty=True,
        answers={200: shapes.Secret},
        tag="consumers",
        admin=True,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/token",
        handler=rotate_token,
        summary="Give the consumer a new token; the previous one is accepted too until the next change",
        body=shapes.TokenBody,
        body_may_be_empty=True,
        answers={200: shapes.Token},
        tag="consumers",
        admin=True,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path=f"{_BASE}/job/{{jobId}}",
        handler=get_job,
        summary="A job of either type of consumer, with its attempts",
        answers={200: shapes.JobDetail},
        tokens=CONSUMER_TOKENS,
        admin=True,
        tag="consumers",
        errors=(410,),
    ),
    Endpoint(
        method="GET",
        path="/v2/channel/{channelId}/consumer/{consumerId}/calls",
        handler=list_calls,
        summary="How an endpoint answered lately: calls, failures, and how long they took",
        answers={200: Calls},
        parameters=(
            Parameter("seconds", "of the last so many; a day, if not given", type="integer"),
        ),
        tag="consumers",
        admin=True,
    ),
)
