"""A member of natsio-pcgroups in a process of its own (Python 3.13): appends to the log what it handled."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import Any

import natsio
from natsio.jetstream import ConsumerConfig
from natsio.pcgroups import elastic_consume, static_consume

from group_processes.worklog import Log, Task, run

JOIN = {"static": static_consume, "elastic": elastic_consume}


async def work(task: Task, log: Log) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    client = await natsio.connect(
        *task.url.split(","),
        ping_interval=0.5,
        reconnect_time_wait=0.05,
        reconnect_time_wait_max=0.2,
        max_reconnect_attempts=-1,
        ignore_discovered_servers=True,
    )
    try:
        while not over.is_set():
            await _take_part(client.jetstream(timeout=2), task, log, over)
    finally:
        await client.close()


async def _take_part(js: Any, task: Task, log: Log, over: asyncio.Event) -> None:
    """Until it is over, or its membership ends; programs then join again."""

    async def handle(message: Any) -> None:
        about = log.begun(message.payload, message.metadata.stream_seq, 0)
        await asyncio.sleep(task.work)
        log.done(about)
        try:
            await (message.ack_sync(task.ack_wait) if task.confirmed else message.ack())
        except natsio.NATSError as error:  # it is delivered again, if it was not acknowledged
            log.unacked(about, error)
        else:
            if task.confirmed:
                log.acked(about)

    config = ConsumerConfig(
        ack_wait=timedelta(seconds=task.ack_wait), max_ack_pending=task.max_ack_pending
    )
    try:
        session = await JOIN[task.kind](js, task.stream, task.group, task.member, handle, config)
    except natsio.NATSError as error:
        log.note("refused", repr(error))
        await asyncio.sleep(task.again)
        return
    log.note("joined")
    ended = asyncio.create_task(session.wait())
    waits = [ended, asyncio.create_task(over.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await session.stop()
    waits[1].cancel()
    try:
        await ended
    except Exception as error:
        log.note("ended", repr(error))
    else:
        log.note("left")


if __name__ == "__main__":
    run(work)
