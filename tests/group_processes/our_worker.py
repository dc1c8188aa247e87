"""A member of ours in a process of its own: appends to the log what it handled."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from group_processes.worklog import Log, Task, run
from headrace import ConsumerConfig
from headrace.client import connect
from headrace.errors import DisconnectedError, HeadraceError, JetStreamApiError
from headrace.groups import GroupMessage, Membership, elastic, static

JOIN: dict[str, Callable[..., Membership[Any]]] = {"static": static.join, "elastic": elastic.join}


async def work(task: Task, log: Log) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    config = ConsumerConfig(ack_wait=task.ack_wait, max_ack_pending=task.max_ack_pending)

    async def handle(message: GroupMessage) -> None:
        sequence = message.metadata.stream_seq
        about = log.begun(message.payload, sequence, message.generation)
        await asyncio.sleep(task.work)
        log.done(about)
        try:
            await (message.ack_sync(timeout=task.ack_wait) if task.confirmed else message.ack())
        except HeadraceError as error:  # it is delivered again, if it was not acknowledged
            log.unacked(about, error)
        else:
            if task.confirmed:
                log.acked(about)

    async with connect(
        task.url,
        ping_interval=0.5,
        reconnect_wait=0.05,
        reconnect_wait_max=0.2,
        connect_timeout=1,
        retry_first_connect=True,
        discover_servers=False,  # they are reached through a line that may be cut
    ) as connection:
        js = connection.jetstream(timeout=2)
        while not over.is_set():
            membership = JOIN[task.kind](
                js,
                task.stream,
                task.group,
                task.member,
                handle,
                config,
                concurrency=task.concurrency,
                on_active=lambda generation: log.note("active", generation),
                on_standby=lambda: log.note("standby"),
                on_error=lambda error: log.note("trouble", repr(error)),
            )
            try:
                await membership.start()
            except (DisconnectedError, JetStreamApiError, TimeoutError) as error:
                log.note("refused", repr(error))  # the server is away, or has no leader
                await asyncio.sleep(task.again)
                continue
            log.note("joined")
            try:
                await _until_over(membership, over)
            finally:
                await membership.leave()
            log.note("left")


async def _until_over(membership: Membership[Any], over: asyncio.Event) -> None:
    """Until the worker is to leave; whatever ends the membership before is raised."""
    waits = [asyncio.create_task(membership.wait()), asyncio.create_task(over.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    waits[1].cancel()
    if not waits[0].done():
        await membership.leave()
    await waits[0]


if __name__ == "__main__":
    run(work)
