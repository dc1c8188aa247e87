"""Fuzz a running broker over its sockets, while a neighbour is served.

    python fuzz/broker_service.py                       an hour
    python fuzz/broker_service.py --seconds 600 --seed 7

`headrace serve` runs as a process of its own. Strangers send it protocol with accidents, whole, in pieces or
half, read the answers or not, and leave politely or not. The promise: the broker does not end and logs no
traceback; a neighbour's requests are answered, and what it stored is there in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from headrace import connect
from jobs_service import BrokenPromiseError
from mutation import Target, mutated
from target_protocol import CORPUS, TOKENS
from web_service import Served

STRANGERS: Final = 8
ANSWER_S: Final = 30.0
READ_S: Final = 0.05
STORED_ALL: Final = 1000  # so many of the first requests are stored, then one of so many
_API: Final = tuple(
    b"PUB $JS.API.%s _INBOX.x %d\r\n%s\r\n" % (what, len(body), body)
    for what in (b"INFO", b"STREAM.CREATE.H", b"STREAM.INFO.H", b"CONSUMER.CREATE.H", b"X.Y")
    for body in (b"", b"{", b'{"name":"H","subjects":["h.>"]}', b'{"max_msgs":1e999}', b"[" * 5000)
)
_STRANGER: Final = Target(
    "broker",
    [
        *CORPUS,
        *_API,
        b"PUB h.a 3\r\nabc\r\n",
        b"SUB > 9\r\n",
        b"CONNECT " + b"[" * 50_000 + b"\r\n",
    ],
    [*TOKENS, b"$JS.API.", b"$SYS.REQ.SERVER.PING", b'"headers":true,', b"\xff\xfe", b"4294967296"],
    lambda data, rng: None,
)


class Fuzzed:
    """A broker under fire, and what was seen of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.connections = 0
        self.refusals = 0
        self.served = 0
        self._broker = Served("headrace serve alone", ["serve", "-p", "-1", "-js"])

    async def run(self, seconds: float) -> None:
        """Fire until the time is over; raise :class:`BrokenPromiseError` if a promise was not kept."""
        async with self._broker.running():
            server = "nats://" + self._broker.said.partition(" at nats://")[2].split()[0]
            host, port = server.removeprefix("nats://").rsplit(":", 1)
            ends = time.monotonic() + seconds
            tasks = [
                asyncio.create_task(self._fire(number, host, int(port), ends))
                for number in range(STRANGERS)
            ]
            tasks.append(asyncio.create_task(self._be_neighbour(server, ends)))
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _fire(self, number: int, host: str, port: int, ends: float) -> None:
        rng = random.Random(f"{self.seed} {number}")
        while time.monotonic() < ends:
            with contextlib.suppress(OSError):
                await self._visit(rng, host, port)
            self.connections += 1
            if rng.random() < 0.01:
                self._broker.check()

    async def _visit(self, rng: random.Random, host: str, port: int) -> None:
        """One connection of a stranger."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            if rng.random() < 0.7:
                line = rng.choice((b"{}", b'{"verbose":true,"headers":true}', b'{"echo":false}'))
                writer.write(b"CONNECT %s\r\n" % line)
            for _ in range(rng.choice((1, 1, 3, 10))):
                data = mutated(_STRANGER, rng)
                at = rng.randrange(len(data) + 1) if rng.random() < 0.3 else len(data)
                for piece in (data[:at], data[at:]):
                    writer.write(piece)
                    await asyncio.sleep(0)
            if rng.random() < 0.3:
                writer.write_eof()
            if rng.random() < 0.8:
                await self._read(reader)
        finally:
            if rng.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        answer = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                while chunk := await reader.read(65536):
                    answer += chunk
        self.refusals += b"-ERR" in answer

    async def _be_neighbour(self, server: str, ends: float) -> None:
        """Ask, be answered, and store, until the time is over; then read what was stored."""
        rng = random.Random(f"neighbour {self.seed}")
        name = f"N{rng.getrandbits(60):x}"
        stored: list[bytes] = []
        try:
            async with connect(server) as connection, asyncio.TaskGroup() as group:
                asked_of_it = await connection.subscribe(f"{name}.ask")
                answering = group.create_task(_answer(asked_of_it))
                js = connection.jetstream()
                stream = await js.create_stream(name=name, subjects=(f"{name}.kept",))
                while not self.served or time.monotonic() < ends:
                    async with asyncio.timeout(ANSWER_S):
                        asked = b"%d" % self.served
                        reply = await connection.request(f"{name}.ask", asked, timeout=ANSWER_S)
                        if self.served < STORED_ALL or self.served % STORED_ALL == 0:
                            await js.publish(f"{name}.kept", asked)
                            stored.append(asked)
                    if reply.payload != asked:
                        raise BrokenPromiseError(f"{asked!r} was answered {reply.payload[:100]!r}")
                    self.served += 1
                answering.cancel()
                for number, payload in enumerate(stored, 1):
                    kept = await stream.get_message(number)
                    if kept.payload != payload:
                        raise BrokenPromiseError(f"message {number} is {kept.payload[:100]!r}")
        except* BrokenPromiseError:
            raise
        except* Exception as errors:
            raise BrokenPromiseError(
                f"the neighbour was not served: {errors.exceptions!r}"
            ) from errors


async def _answer(subscription: Any) -> None:
    async for message in subscription:
        await message.respond(message.payload)


async def fuzz(seconds: float, seed: int) -> bool:
    """Whether the promises were kept. Says how much was tried."""
    fuzzed = Fuzzed(seed)
    begun, good = time.monotonic(), True
    try:
        await fuzzed.run(seconds)
    except* BrokenPromiseError as errors:
        print(*errors.exceptions, sep="\n", file=sys.stderr)
        good = False
    print(
        f"broker: {fuzzed.connections:,} connections of strangers, {fuzzed.refusals:,} refused in words,"
        f" {fuzzed.served:,} requests of a neighbour in {time.monotonic() - begun:.0f} s, seed {seed}:"
        f" {'good' if good else 'BROKEN'}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz a running broker over its sockets.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="in all (default: 3600)")
    parser.add_argument("--seed", type=int, default=1, help="of the generators (default: 1)")
    arguments = parser.parse_args()
    return 0 if asyncio.run(fuzz(arguments.seconds, arguments.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
