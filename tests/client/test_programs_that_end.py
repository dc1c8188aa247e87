"""What becomes of messages when a whole program ends: by a signal it handles or not, or by returning."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

import guides
import peers
from ended_programs import told_by
from example_programs import started
from headrace.client import Connection, Consumer, Stream, connect
from waiting import until

pytestmark = pytest.mark.peer

PAGE = guides.ROOT / "docs" / "explanation" / "closing.md"
PROGRAM = Path(__file__).with_name("ending_worker.py")
WAYS = ("called", "iterated", "thread")
MESSAGES = 60
ACK_WAIT_S = 3.0
PATIENT_S = 3600.0
"""The time to acknowledge where everything comes again at once: nobody waits for its end."""


def is_orderly(end: str, way: str) -> bool:
    """Whether what is ahead is given back at this end."""
    return end == "leave" or (end == "return" and way == "thread")


async def prepared(connection: Connection, end: str) -> tuple[Stream, dict[str, Consumer]]:
    name = f"END-{end}"
    js = connection.jetstream()
    stream = await js.create_stream(name=name, subjects=[name], storage="memory")
    async with js.publisher() as publisher:
        await publisher.send_many((name, b"x") for _ in range(MESSAGES))
    return stream, {
        way: await stream.create_consumer(
            durable_name=way, ack_wait=PATIENT_S if is_orderly(end, way) else ACK_WAIT_S
        )
        for way in WAYS
    }


async def came_again(consumer: Consumer, expected: int) -> list[int]:
    """What the next worker gets."""
    taken = list[int]()
    while len(taken) < expected:
        batch = await consumer.fetch(expected - len(taken), max_wait=10 * ACK_WAIT_S)
        assert batch, f"{len(taken)} of {expected}"
        taken += [message.metadata.stream_seq for message in batch]
        batch.ack()
    return sorted(taken)


async def left_of(consumer: Consumer) -> int:
    """How many messages the server has no acknowledgement of."""
    info = await consumer.info()
    return info.num_pending + info.num_ack_pending


@pytest.mark.parametrize("end", ["leave", "run", "return"])
async def test_every_message_is_acknowledged_or_comes_again(
    reference_server: peers.ServerProcess, end: str
) -> None:
    async with connect(reference_server.url) as connection:
        stream, consumers = await prepared(connection, end)
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "dev", str(PROGRAM), reference_server.url, stream.name, end),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        told = await told_by(program, end, WAYS)
        left = [
            await left_of(consumers[way]) if end == "run" else MESSAGES - len(told[f"acked {way}"])
            for way in WAYS
        ]
        waits = [came_again(consumers[way], many) for way, many in zip(WAYS, left, strict=True)]
        rests = dict(zip(WAYS, await asyncio.gather(*waits), strict=True))
        everything = set(range(1, MESSAGES + 1))
        for way, rest in rests.items():
            begun, acked = (told[f"{what} {way}"] for what in ("begun", "acked"))
            assert everything - set(rest) <= set(begun), f"{way}: nothing is lost"
            if is_orderly(end, way):
                assert begun == acked, f"{way}: the one in hand was let be handled"
                assert sorted(acked + rest) == sorted(everything), f"{way}: none is handled twice"
        assert program.returncode == (-signal.SIGTERM if end == "run" else 0)
        await stream.delete()


async def test_the_program_of_the_page_leaves_its_blocks_at_sigterm(
    reference_server: peers.ServerProcess, tmp_path: Path
) -> None:
    (block,) = guides.blocks_of(PAGE)
    code = block.code.replace("connect()", f'connect("{reference_server.url}")')
    (tmp_path / "mill.py").write_text(code)
    async with connect(reference_server.url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"], storage="memory")
        await js.publish("orders.1", b"two apples")
        url, log = reference_server.url, tmp_path / "log"
        async with started("mill.py", url=url, log=log, folder=tmp_path) as program:
            await until(lambda: "two apples" in program.said, "it never had one", within=60)
            said = (await program.ended(told=True)).splitlines()
        slow = "Executing "  # what asyncio's debug mode says of a long turn
        assert [line for line in said if not line.startswith(slow)] == ["b'two apples'", "ended"]
        assert await left_of(await stream.consumer("mill")) == 0
        await stream.delete()
