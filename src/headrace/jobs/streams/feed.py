"""Streams in and out: a durable pull consumer feeds a channel, and outcomes are published to a stream.

In: one message for each sequence of the stream, effectively once. The id of a message contains the stream,
its creation time and the sequence, so a redelivery finds the message stored already. A batch is
acknowledged when its messages and their jobs are durable. Out: outcomes stay in a table until the stream
has them, and their ids let the stream drop duplicates.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from ...client import Batch, Consumer, JetStream, connect
from ...errors import ConfigurationError
from .. import ids
from ..config.config import FeedConfig, OutcomesConfig
from ..models import rfc3339, state_name
from ..runtime.runtime import Runtime
from ..service import processes
from ..service.publishing import publishing
from ..store import Row, Tx
from .messages import message_of

__all__ = ["feed_channel", "publish_outcomes"]

_WAIT_S: Final = 5.0
_OUTCOMES: Final = 200
_OUTCOMES_TASK: Final = "outcomes"
_OUTCOMES_LEAD_S: Final = 10.0
_OUTCOMES_PAUSE_S: Final = 0.25


async def feed_channel(runtime: Runtime, config: FeedConfig) -> None:
    """Feed until cancelled. Errors are logged and retried; nothing is acknowledged early."""
    part = f"feed {config.channel}"
    await _for_ever(runtime, part, lambda: _feed(runtime, config, part))


async def _feed(runtime: Runtime, config: FeedConfig, part: str) -> None:
    async with _jetstream(config.url) as js:
        stream = await js.stream(config.stream)
        created = (await stream.info()).created or ""
        consumer: Consumer = await stream.create_or_update_consumer(
            durable_name=config.group,
            filter_subject="" if config.filter == ">" else config.filter,
            ack_policy="explicit",
            max_ack_pending=config.batch * 4,
        )
        prefix = ids.prefix_of(config.stream, created)
        while not runtime.draining.is_set():
            batch: Batch = await consumer.fetch(config.batch, max_wait=_WAIT_S)
            if not batch:
                runtime.parts.worked(part)
                continue
            messages = [message_of(prefix, message) for message in batch]
            new, jobs = await runtime.database.write(
                lambda tx, m=messages: publishing.feed(  # type: ignore[misc]
                    tx, config.channel, m, tx.now_us()
                )
            )
            batch.ack()
            runtime.parts.worked(part)
            runtime.metrics.add("jobs_published_total", new, channel=config.channel)
            runtime.metrics.add("jobs_enqueued_total", jobs, channel=config.channel)


async def publish_outcomes(runtime: Runtime, config: OutcomesConfig) -> None:
    """Publish outcomes of jobs until cancelled; one process at a time, in order."""
    await _for_ever(runtime, _OUTCOMES_TASK, lambda: _publish(runtime, config))


async def _publish(runtime: Runtime, config: OutcomesConfig) -> None:
    made = secrets.token_hex(8)
    origin = await runtime.database.write(lambda tx: processes.make_once(tx, "database_id", made))
    async with _jetstream(config.url) as js:
        while not runtime.draining.is_set():
            rows = await runtime.database.write(
                lambda tx: _next_outcomes(tx, runtime.node, tx.now_us())
            )
            runtime.parts.worked(_OUTCOMES_TASK)
            if not rows:
                await asyncio.sleep(_OUTCOMES_PAUSE_S)
                continue
            # Each outcome has an id, so it may be sent repeatedly until the stream has a leader and stores
            # it.
            async with js.publisher(deduplicate=True) as publisher:
                for row in rows:
                    await publisher.send(
                        config.subject, _outcome(row), msg_id=f"{origin}-{row['seq']}"
                    )
            done = json.dumps([row["seq"] for row in rows])
            await runtime.database.write(
                lambda tx, done=done: tx.run("delete_outcomes", seqs=done)  # type: ignore[misc]
            )


def _next_outcomes(tx: Tx, node: str, now: int) -> list[Row]:
    if not processes.take_lead(tx, _OUTCOMES_TASK, node, _OUTCOMES_LEAD_S, now):
        return []
    return list(tx.all("list_outcomes", n=_OUTCOMES))


def _outcome(row: Row) -> bytes:
    return msgspec.json.encode(
        {
            "job": str(row["job_seq"]),
            "channel": row["channel_id"],
            "consumer": row["consumer_id"],
            "message": row["message_id"],
            "state": state_name(row["state"]),
            "retries": row["retries"],
            "error": row["error"],
            "at": rfc3339(row["at_us"]),
        }
    )


@asynccontextmanager
async def _jetstream(url: str) -> AsyncIterator[JetStream]:
    async with connect(url) as connection:
        yield connection.jetstream()


async def _for_ever(
    runtime: Runtime, part: str, attempt: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Begin again after whatever ended it; only a setting that can never work is raised."""
    while True:
        try:
            await attempt()
            return
        except ConfigurationError:
            raise
        except Exception as error:
            pause_s = runtime.parts.failed(part, error)
        await asyncio.sleep(pause_s)
