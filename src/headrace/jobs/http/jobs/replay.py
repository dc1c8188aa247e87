"""Replaying the jobs of a channel: by message or by time, at a rate, after a dry run."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import bad_request
from ...matching.payloads import check_paths
from ...models import Consumer, rfc3339
from ...runtime.runtime import Runtime
from ...service.definitions import channels, consumers
from ...service.replaying import replaying
from ...service.replaying.replaying import Replayed, Wanted
from ...states import TERMINAL, State
from ...store import Tx
from ..request.access import recorded
from ..request.endpoint import Endpoint, reply
from ..request.incoming import moment_us, read_json, require_admin
from . import job_shapes

__all__ = ["ENDPOINTS"]

_NAMES: Final = tuple(sorted(state.name for state in TERMINAL))


async def replay(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, job_shapes.ReplayBody)
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
        job_shapes.ReplayedJobs(
            delivered=states[State.DELIVERED],
            dead=states[State.DEAD],
            consumers={name: count for name, count in sorted(named.items()) if count},
            last_due_at=rfc3339(wanted.due_us(done - 1)) if done else None,
            dry_run=body.dry_run,
        )
    )


def _detail(body: job_shapes.ReplayBody) -> str:
    """Which jobs were meant, for the audit log, which has nothing of payloads but the paths."""
    wanted = {**msgspec.to_builtins(body), "payload": " ".join(sorted(body.payload))}
    return ", ".join(f"{name}: {value}" for name, value in wanted.items() if value)


def _check(body: job_shapes.ReplayBody) -> None:
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


def _chosen(tx: Tx, channel_id: str, body: job_shapes.ReplayBody) -> tuple[list[Consumer], Wanted]:
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
    body: job_shapes.ReplayBody,
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
        method="POST",
        path="/v2/channel/{channelId}/replay",
        handler=replay,
        summary="Hand out delivered and dead jobs again, by message or by time",
        body=job_shapes.ReplayBody,
        answers={200: job_shapes.ReplayedJobs},
        tag="jobs",
        admin=True,
        scopes=("operate",),
        audited=True,
        legacy=False,
        errors=(400, 401, 403, 404, 413, 415),
    ),
)
