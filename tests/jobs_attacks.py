"""Attacks on a running job service: strangers that keep connections, tenants that ask for much.

An attack goes on until it is cancelled, and tells of each of its steps that ended: a request answered, a
connection that the service closed. What it needs to be there it makes before the first.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx2

from certificates import self_signed
from children import end_with_us
from headrace.jobs import limits
from headrace.jobs.client import AsyncJobsClient
from listening import HOST, Listening

__all__ = ["ATTACKS", "Attacking", "Neighbour", "Victim", "serving", "trusting"]

Tell = Callable[[], None]
HEAD: Final = b"POST /channel/c/broadcast HTTP/1.1\r\nHost: localhost\r\n"
CONFIG: Final = """
port = 0
database = "{database}"
allow_networks = ["127.0.0.0/8"]
drain_seconds = 1
[tls]
cert = "{cert}"
key = "{key}"
[producers.p]
token = "pt"
[channels.neighbour]
token = "ct"
[channels.neighbour.consumers.k]
token = "kt"
type = "pull"
"""


@dataclass(frozen=True)
class Victim:
    """A service that speaks TLS."""

    url: str
    tls: ssl.SSLContext
    scale: float = 1.0
    """How much of everything is asked of it."""

    def many(self, count: int) -> int:
        return max(1, round(count * self.scale))

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with httpx2.AsyncClient(base_url=self.url, verify=self.tls, timeout=120) as http:
            yield http

    @asynccontextmanager
    async def connected(
        self, *, shakes_hands: bool = True
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        tls = self.tls if shakes_hands else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


@asynccontextmanager
async def serving(directory: Path, database: str, scale: float = 1.0) -> AsyncIterator[Victim]:
    """A service in a process of its own, with a channel ``neighbour``."""
    cert, key = self_signed(directory)
    config = directory / "jobs.toml"
    config.write_text(CONFIG.format(database=database, cert=cert, key=key))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "jobs", "serve", "--config", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # it tells of each that it closes
        preexec_fn=end_with_us,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode().split()[-1]
        yield Victim(url, trusting(str(cert)), scale)
    finally:
        process.kill()
        await process.wait()


class Attacking:
    """An attack that is under way. Leaving it ends the attack, and fails if that had failed."""

    def __init__(self, name: str, victim: Victim) -> None:
        self.steps = 0
        self._begun = asyncio.Event()
        self._attack, self._victim = ATTACKS[name], victim

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._attack(self._victim, self._tell))
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait((begun, self._task), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._task.done():
            self._task.result()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task.done():
            self._task.result()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _tell(self) -> None:
        self.steps += 1
        self._begun.set()


class Neighbour:
    """Publishes and works, one after the other, on a connection that it has."""

    def __init__(self, client: AsyncJobsClient) -> None:
        self._client = client
        self._queue = client.queue("neighbour", "k", channel_token="ct", consumer_token="kt")

    async def publish(self) -> None:
        """Raises JobsError if it is refused."""
        await self._client.publish(
            "neighbour", b"x", channel_token="ct", producer="p", producer_token="pt"
        )

    async def work_off(self) -> int:
        """Claim what there is, and complete it; how much there was."""
        count = 0
        while jobs := await self._queue.claim(100):
            count += len(await self._queue.complete(jobs))
        return count


async def heads(victim: Victim, tell: Tell) -> None:
    """Heads of requests without an end, as fast as they are taken."""
    line = b"X-Padding: " + b"x" * 4000 + b"\r\n"

    async def one() -> None:
        while True:
            try:
                async with victim.connected() as (reader, writer):
                    writer.write(HEAD)
                    while not reader.at_eof():
                        writer.write(line)
                        await writer.drain()
                        await asyncio.sleep(0)
            except OSError:
                pass  # closed while we wrote
            tell()

    await together(8, one)


async def slow_heads(victim: Victim, tell: Tell) -> None:
    """Many connections, each of which has begun a request."""

    async def one() -> None:
        while True:
            async with victim.connected() as (reader, writer):
                writer.write(HEAD)
                tell()
                await closed(reader)

    await together(100, one)


async def handshakes(victim: Victim, tell: Tell) -> None:
    """Many connections that never shake hands."""

    async def one() -> None:
        while True:
            async with victim.connected(shakes_hands=False) as (reader, _):
                tell()
                await closed(reader)

    await together(300, one)


async def silent_endpoints(victim: Victim, tell: Tell) -> None:
    """Consumers with all the concurrency they may have, whose endpoint reads and never answers."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tell()
        await closed(reader)

    async with Listening(swallow) as silent, victim.http() as http:
        await channel(http, "silent")
        for number in range(5):
            form = {"type": "push", "token": "kt", "callbackUrl": f"http://{HOST}:{silent.port}/"}
            settings = {"concurrency": limits.PUSH_CONCURRENCY_MAX, "timeout_s": 300}
            await consumer(http, "silent", f"h{number}", form, settings)
        while True:
            await publish(http, "silent")


async def big_batches(victim: Victim, tell: Tell) -> None:
    """Batches of as many messages as are taken, with keys and uniqueness, for forty consumers."""
    numbers = itertools.count()
    async with victim.http() as http:
        await channel(http, "batches")
        for number in range(victim.many(40)):
            await consumer(http, "batches", f"k{number}", {"type": "pull", "token": "kt"}, {})

        async def one() -> None:
            while True:
                messages = [
                    {
                        "payload": f"{next(numbers)}",
                        "ordering_key": f"key {n}",
                        "unique": {"by": ["payload"], "within": 60},
                    }
                    for n in range(victim.many(limits.BATCH_MAX))
                ]
                body = {"messages": messages}
                await answered(
                    http.post("/v2/channel/batches/messages/batch", json=body, headers=TOKENS)
                )
                tell()

        await together(2, one)


async def big_filters(victim: Victim, tell: Tell) -> None:
    """Consumers with the largest filters that are taken, changed all the time, and messages for them."""
    async with victim.http() as http:
        await channel(http, "filters")
        for number in range(victim.many(40)):
            await consumer(
                http, "filters", f"k{number}", {"type": "pull", "token": "kt"}, large_filter(number)
            )
        changes = itertools.count()

        async def change() -> None:
            while True:
                number = next(changes)
                path = f"/v2/channel/filters/consumer/k{number % victim.many(40)}"
                await answered(http.patch(path, json={"settings": large_filter(number)}))
                tell()

        async def batches() -> None:
            batch = [
                {"payload": "x", "headers": {"X-Kind": "b" * 90}, "subject": f"a.{'b' * 60}.c.{n}"}
                for n in range(victim.many(limits.BATCH_MAX))
            ]
            while True:
                await answered(
                    http.post(
                        "/v2/channel/filters/messages/batch",
                        json={"messages": batch},
                        headers=TOKENS,
                    )
                )
                tell()

        await asyncio.gather(change(), batches())


async def costly_filters(victim: Victim, tell: Tell) -> None:
    """Consumers whose filters look through the headers of each message for as long as there can be."""
    patterns = [f"*{'*'.join(['ab'] * 60)}*{each}x*" for each in range(limits.FILTER_PATTERNS_MAX)]
    settings = {"filter": {"headers": {"X-Kind": patterns}}}
    message = {"payload": "x", "headers": {"X-Kind": "b" * 100 + "ab" * 7000}}
    async with victim.http() as http:
        await channel(http, "costly")
        for number in range(victim.many(40)):
            await consumer(http, "costly", f"k{number}", {"type": "pull", "token": "kt"}, settings)
        while True:
            await answered(
                http.post(
                    "/v2/channel/costly/messages/batch",
                    json={"messages": [message] * victim.many(20)},
                    headers=TOKENS,
                )
            )
            tell()


async def numbers(victim: Victim, tell: Tell) -> None:
    """Many consumers, and everybody asks for the numbers of all of them."""
    async with victim.http() as http:
        await channel(http, "numbers")
        for number in range(victim.many(200)):
            await consumer(http, "numbers", f"k{number}", {"type": "pull", "token": "kt"}, {})
        await publish(http, "numbers")
        pages = itertools.cycle(["/metrics", "/_status", "/job-status", "/dlq-status"])

        async def one() -> None:
            while True:
                await answered(http.get(next(pages)))
                tell()

        await together(4, one)


async def guesses(victim: Victim, tell: Tell) -> None:
    """Wrong tokens, as many as are answered; each from a connection that others do not share."""
    async with victim.http() as http:

        async def one() -> None:
            while True:
                headers = {**TOKENS, "X-Broker-Channel-Token": "guess"}
                answer = await http.post("/channel/c/broadcast", content=b"x", headers=headers)
                assert answer.status_code in (403, 404, 429), answer.text
                tell()

        await together(8, one)


Attack = Callable[[Victim, Tell], Awaitable[None]]
ATTACKS: Final[dict[str, Attack]] = {
    "heads": heads,
    "slow heads": slow_heads,
    "handshakes": handshakes,
    "silent endpoints": silent_endpoints,
    "big batches": big_batches,
    "big filters": big_filters,
    "costly filters": costly_filters,
    "numbers": numbers,
    "guesses": guesses,
}
TOKENS: Final = {
    "X-Broker-Channel-Token": "ct",
    "X-Broker-Producer-ID": "p",
    "X-Broker-Producer-Token": "pt",
}


def large_filter(number: int) -> dict[str, Any]:
    """The settings of a consumer whose filter has as many patterns as it may, and long ones."""
    many = range(limits.FILTER_PATTERNS_MAX)
    subjects = [f"a.{'b' * 60}.*.{number}.{each}" for each in many]
    values = [f"{'*b' * 40}*{number}{each}" for each in many]
    return {"filter": {"subjects": subjects, "headers": {"X-Kind": values}}}


async def channel(http: httpx2.AsyncClient, name: str) -> None:
    await made(http.put(f"/channel/{name}", data={"token": "ct"}))


async def consumer(
    http: httpx2.AsyncClient,
    channel_id: str,
    name: str,
    form: dict[str, str],
    settings: dict[str, Any],
) -> None:
    await made(http.put(f"/channel/{channel_id}/consumer/{name}", data=form))
    if settings:
        path = f"/v2/channel/{channel_id}/consumer/{name}"
        await made(http.patch(path, json={"settings": settings}))


async def publish(http: httpx2.AsyncClient, channel_id: str) -> None:
    await made(http.post(f"/channel/{channel_id}/broadcast", content=b"x", headers=TOKENS))


async def made(answer: Awaitable[httpx2.Response]) -> None:
    found = await answer
    assert found.is_success, found.text


async def answered(answer: Awaitable[httpx2.Response]) -> None:
    found = await answer
    # That it is busy may be said to who asks for much.
    assert found.is_success or found.status_code in (429, 503), found.text


async def closed(reader: asyncio.StreamReader) -> None:
    """Wait until the other end closes."""
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass  # it did so without a word


async def together(count: int, one: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())  # type: ignore[arg-type]
