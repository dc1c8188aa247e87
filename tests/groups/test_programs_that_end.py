"""What becomes of a group's messages, and of requests to a service, when a whole program ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import peers
from ended_programs import told_by
from headrace.api.consumers import ConsumerConfig
from headrace.client import JetStream
from headrace.errors import HeadraceError
from headrace.groups import GroupMessage, MemberMapping, PartitioningFilter, elastic
from waiting import until

pytestmark = pytest.mark.peer

PROGRAM = Path(__file__).with_name("ending_member.py")
WAYS = ("coroutine", "plain", "iterated", "blocking")
MESSAGES = 160
REQUESTS = 30
ACK_WAIT_S, PATIENT_S = 2.0, 3600.0
"""The time to acknowledge; where everything comes again at once nobody waits for its end."""


async def ask(js: JetStream, end: str, number: int, answered: list[int]) -> None:
    """One request of many, which wait for each other at the service."""
    try:
        await js.connection.request(f"ask.{end}", b"%d" % number, timeout=4)
    except (HeadraceError, TimeoutError):
        return
    answered.append(number)


async def ask_all(js: JetStream, end: str, answered: list[int]) -> None:
    """Many requests at once, as soon as there is somebody who answers."""
    await until(lambda: subscribed(js, end), "the service is not there", within=100)
    await asyncio.gather(*(ask(js, end, number, answered) for number in range(1, REQUESTS + 1)))


async def prepare(js: JetStream, name: str) -> None:
    await js.create_stream(name=name, subjects=[f"{name}.*"], storage="memory")
    filters = [PartitioningFilter(f"{name}.*", (1,))]
    shares = [MemberMapping(way, (number,)) for number, way in enumerate(WAYS)]
    await elastic.create(js, name, "g", 4, partitioning_filters=filters, member_mappings=shares)
    async with js.publisher() as publisher:
        await publisher.send_many((f"{name}.{i % 64}", b"%d" % i) for i in range(MESSAGES))


async def subscribed(js: JetStream, end: str) -> bool:
    try:
        await js.connection.request(f"ask.{end}", b"0", timeout=0.5)
    except (HeadraceError, TimeoutError):
        return False
    return True


@pytest.mark.parametrize("end", ["leave", "run", "return"])
async def test_every_message_is_acknowledged_or_comes_again(
    js: JetStream, reference_server: peers.ServerProcess, end: str
) -> None:
    name = f"END-{end}"
    await prepare(js, name)
    ack_wait = PATIENT_S if end == "leave" else ACK_WAIT_S
    where = reference_server.url, name, end, str(ack_wait)
    command = [sys.executable, "-X", "dev", str(PROGRAM), *where]
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    answered: list[int] = []
    asked = asyncio.create_task(ask_all(js, end, answered))
    told = await told_by(program, end, (*WAYS, "service"))
    assert program.returncode == (-signal.SIGTERM if end == "run" else 0)
    rest: list[int] = []
    done = [number for way in WAYS for number in told[f"acked {way}"]]

    async def handle(message: GroupMessage) -> None:
        rest.append(int(message.payload))
        await message.ack_sync()

    config = ConsumerConfig(ack_wait=ack_wait, max_ack_pending=1000)
    joined: list[Any] = [elastic.join(js, name, "g", way, handle, config) for way in WAYS]
    work = await js.stream(f"{name}-g")

    async def is_empty() -> bool:
        return not (await work.info()).state.messages

    async with joined[0], joined[1], joined[2], joined[3]:
        await until(is_empty, "what was ahead did not come again", within=30)
    everything = list(range(MESSAGES))
    assert set(done) | set(rest) == set(everything), "nothing is lost"
    orderly = WAYS if end == "leave" else ("blocking",) if end == "return" else ()
    for way in orderly:
        assert told[f"begun {way}"] == told[f"acked {way}"], f"{way}: what was in hand was handled"
        assert not set(told[f"acked {way}"]) & set(rest), f"{way}: none is handled twice"
    if end == "leave":
        assert told["begun service"] == told["acked service"]
    await asked
    if end == "leave":  # a service that is stopped answers what has come
        assert sorted(answered) == list(range(1, REQUESTS + 1))
        return
    # an answer is sent after the handler's turn, so the next request may have begun before it left
    assert set(told["acked service"]) - {0} - set(answered) <= set(told["begun service"][-2:])
