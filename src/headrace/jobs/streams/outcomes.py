"""Outcomes of jobs, published to a stream.

They stay in a table until the stream has them, and their ids let the stream drop duplicates.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Final

import msgspec

from ...client import connect
from ..config import OutcomesConfig
from ..models import rfc3339, state_name
from ..runtime.runtime import Runtime
from ..service import processes
from ..store import Row, Tx

__all__ = ["publish_outcomes"]

_OUTCOMES: Final = 200
_TASK: Final = "outcomes"
_LEAD_S: Final = 10.0
_PAUSE_S: Final = 0.25


async def publish_outcomes(runtime: Runtime, config: OutcomesConfig) -> None:
    """Publish outcomes of jobs until cancelled; one process at a time, in order."""
    await runtime.parts.for_ever(_TASK, lambda: _publish(runtime, config))


async def _publish(runtime: Runtime, config: OutcomesConfig) -> None:
    made = secrets.token_hex(8)
    origin = await runtime.database.write(lambda tx: processes.make_once(tx, "database_id", made))
    async with connect(config.url) as connection:
        js = connection.jetstream()
        while not runtime.draining.is_set():
            rows = await runtime.database.write(
                lambda tx: _next_outcomes(tx, runtime.node, tx.now_us())
            )
            runtime.parts.worked(_TASK)
            if not rows:
                await asyncio.sleep(_PAUSE_S)
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
    if not processes.take_lead(tx, _TASK, node, _LEAD_S, now):
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
