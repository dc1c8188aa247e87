"""Fuzz what a browser and a scraper reach: the web console, the broker's pages of numbers, metrics.

    python fuzz/web_service.py                       an hour
    python fuzz/web_service.py --seconds 600 --seed 7

`headrace serve` with a console of its own, and `headrace console`, run as processes of their own; the latter
shows a job service and a monitoring port that answer anything. Hostile requests come over raw sockets, while
hostile messages, keys, objects, schemas and records of groups lie in the streams that are shown, and commands
of ``headrace`` show the schemas, too. The promise: nothing ends, nothing is answered 500, no traceback is
logged or shown, and in the end each page still shows what it should. A request that is answered 500 is kept
in ``fuzz/kept/web``, where the tests play it from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import hashlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from headrace import connect
from headrace.client.metrics import MetricsServer
from headrace.errors import HeadraceError
from jobs_answers import HostileEndpoint
from jobs_requests import text
from jobs_service import BrokenPromiseError, traceback_in
from web_registry import BrokenCommandError, fill, run_command, store
from web_requests import console_request, page_request

KEPT: Final = Path(__file__).resolve().parent / "kept" / "web"
CLIENTS: Final = 6
ANSWER_S: Final = 20.0
STREAMED: Final = 64 * 1024
READY: Final = {
    "headrace serve": b"Console at ",
    "headrace console": b"http",
    "headrace serve alone": b"Server is ready",
}


class HostilePeer(HostileEndpoint):
    """A job service and a monitoring port whose documents are JSON of any shape, or none."""

    def _made(self, rng: random.Random) -> bytes:
        if rng.random() < 0.2:
            return super()._made(rng)
        body = json.dumps(_document(rng, 0)).encode()
        if rng.random() < 0.1:
            body = body[: rng.randrange(len(body) + 1)] + rng.choice((b"", b"\xff", b"[" * 20_000))
        status = rng.choice((200, 200, 200, 400, 404))
        return b"HTTP/1.1 %d Word\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def _document(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(5) if depth < 4 else rng.randrange(3)
    if kind == 0:
        return rng.choice((None, True, 0, -1, 2**63, 1.5, "", "x/y/z", "?next=a"))
    if kind in (1, 2) and depth:
        return text(rng).decode("utf-8", "replace")
    if kind == 3:
        return [_document(rng, depth + 1) for _ in range(rng.randrange(3))]
    names = (
        "events",
        "DeadJobs",
        "Pages",
        "JobRequeueURL",
        "jobs",
        "pages",
        "message",
        "next",
        "previous",
    )
    return {rng.choice(names): _document(rng, depth + 1) for _ in range(rng.randrange(5))}


class Served:
    """A process of ours, its log, and the ports that it told."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name = name
        self._arguments = arguments
        self._log = bytearray()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """The address that its log tells when it is ready; ends it, and looks whether it ended well."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", *self._arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        reader = self._process.stdout
        if reader is None:
            raise AssertionError("a pipe was asked for")
        mark = READY[self.name]
        line = b""
        while mark not in line:
            line = await reader.readline()
            self._log += line
            if not line:
                raise BrokenPromiseError(f"{self.name} did not start\n{self.said}")
        copying = asyncio.create_task(self._copy(reader))
        try:
            yield "http" + line.decode().rpartition("http")[2].split()[0]
            self.check()
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                raise BrokenPromiseError(f"{self.name} did not end within 20 s") from None
            finally:
                await copying

    async def _copy(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(65536):
            self._log += chunk

    @property
    def said(self) -> str:
        """Its log so far."""
        return self._log.decode("utf-8", "replace")

    def check(self) -> None:
        """Raise if it ended, or has logged what it did not expect."""
        if self._process.returncode is not None:
            raise BrokenPromiseError(
                f"{self.name} ended: {self._process.returncode}\n{self.said[-4000:]}"
            )
        if (found := traceback_in(self.said)) is not None:
            raise BrokenPromiseError(f"a traceback in the log of {self.name}\n{found}")


class Fuzzed:
    """Console and pages of numbers under fire, and what was seen of them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.requests = 0
        self.statuses: collections.Counter[str] = collections.Counter()
        self.peer_answers = 0
        self.commands: collections.Counter[str] = collections.Counter()
        self._served: list[Served] = []
        self._surprises: list[str] = []

    async def run(self, seconds: float, requests: int | None = None) -> None:
        """Fire until the time is over, or so many requests were sent; then look whether it still works."""
        asyncio.get_running_loop().set_exception_handler(self._surprised)
        async with contextlib.AsyncExitStack() as stack:
            peer = await stack.enter_async_context(HostilePeer(f"peer {self.seed}", []))
            broker = self._new("headrace serve", "serve", "-p", "-1", "-m", "-1", "--console", "0")
            own = await stack.enter_async_context(broker.running())
            server = "nats://" + broker.said.partition(" at nats://")[2].split()[0]
            pages = "http://" + broker.said.partition("Starting http monitor on ")[2].split()[0]
            peer_url = peer.urls[0].removesuffix("/hook")
            console = self._new(
                *(
                    "headrace console",
                    "console",
                    "--port",
                    "0",
                    "-s",
                    server,
                    "--interval",
                    "200ms",
                ),
                *("--jobs", peer_url, "--monitoring", peer_url),
            )
            other = await stack.enter_async_context(console.running())
            connection = await stack.enter_async_context(connect(server))
            metrics = await stack.enter_async_context(MetricsServer({"c": connection}, port=0))
            numbers = _port(metrics.url.removesuffix("/metrics"))
            js = connection.jetstream()
            await self._fill(js, random.Random(f"messages {self.seed}"))
            ends = time.monotonic() + seconds
            showing = asyncio.create_task(self._show_schemas(js, server, ends))
            stack.push_async_callback(_end, showing)
            await self._fire_all(
                ends=ends,
                requests=requests,
                ports={
                    _port(own): console_request,
                    _port(other): console_request,
                    _port(pages): page_request,
                    numbers: page_request,
                },
            )
            await showing
            await self._still_works(js, _port(own), _port(other), _port(pages), numbers)
            self.peer_answers = peer.answers
        if self._surprises:
            raise BrokenPromiseError("\n".join(self._surprises))

    def _new(self, name: str, *arguments: str) -> Served:
        self._served.append(Served(name, list(arguments)))
        return self._served[-1]

    def _surprised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        if not isinstance(context.get("exception"), OSError | BrokenPromiseError):
            self._surprises.append(f"an error in a loop: {context}")

    async def _fire_all(
        self,
        ends: float,
        requests: int | None,
        ports: dict[int, Callable[[random.Random], tuple[bytes, bool]]],
    ) -> None:
        async def fire(number: int, port: int) -> None:
            rng = random.Random(f"{self.seed} {number}")
            while time.monotonic() < ends and (requests is None or self.requests < requests):
                data, whole = ports[port](rng)
                await self.play(port, data, whole=whole)
                if rng.random() < 0.01:
                    for served in self._served:
                        served.check()

        each = [
            port for port in ports for _ in range(CLIENTS if ports[port] is console_request else 2)
        ]
        tasks = [asyncio.create_task(fire(number, port)) for number, port in enumerate(each)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def play(self, port: int, data: bytes, *, whole: bool = True) -> bytes:
        """Send ``data`` and return what is answered, or its beginning; a 500 breaks the promise."""
        answer = b""
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(data)
                    if not whole:
                        writer.write_eof()
                    answer = await _answer(reader)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise BrokenPromiseError(f"no answer within {ANSWER_S:g} s to {data[:500]!r}") from None
        except OSError:
            self.statuses["closed"] += 1
        self.requests += 1
        status = answer[9:12].decode("latin-1") or "none"
        self.statuses[status] += 1
        if status == "500":
            KEPT.mkdir(parents=True, exist_ok=True)
            path = KEPT / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
            path.write_bytes(data)
            said = "".join(served.said[-3000:] for served in self._served)
            raise BrokenPromiseError(f"500, kept as {path}: {data[:500]!r}\n{said}")
        return answer

    async def _show_schemas(self, js: Any, server: str, ends: float) -> None:
        """Have commands show the schemas, of which others come meanwhile; one command at least."""
        rng = random.Random(f"schemas {self.seed}")
        await fill(js, rng)
        while not self.commands or time.monotonic() < ends:
            await store(js, rng)
            try:
                self.commands[await run_command(server, rng)] += 1
            except BrokenCommandError as error:
                raise BrokenPromiseError(str(error)) from error

    async def _fill(self, js: Any, rng: random.Random) -> None:
        """Streams, buckets and groups whose contents are anybody's."""
        stream = await js.create_stream(name="S", subjects=("s.>",), allow_direct=True)
        await stream.create_consumer(durable_name="C")
        await js.create_key_value(bucket="B", history=5)
        await js.create_object_store(bucket="O")
        for name in ("static-consumer-groups", "elastic-consumer-groups"):
            await js.create_key_value(bucket=name)
        for _ in range(200):
            subject = rng.choice(
                (
                    *(
                        "s.a",
                        "s.b.c",
                        "$KV.B.k",
                        "$KV.B.a.b",
                        "$O.O.M.bw",
                        "$O.O.C.x",
                        "$O.O.M.YS9i",
                    ),
                    *("$KV.static-consumer-groups.S.G", "$KV.elastic-consumer-groups.S.G"),
                )
            )
            headers = {"Content-Type": "x", "KV-Operation": rng.choice(("DEL", "PURGE", "odd"))}
            with contextlib.suppress(HeadraceError):
                body = text(rng) if rng.random() < 0.5 else json.dumps(_document(rng, 0)).encode()
                await js.publish(subject, body, headers=headers if rng.random() < 0.3 else None)

    async def _still_works(self, js: Any, own: int, other: int, pages: int, metrics: int) -> None:
        """What was there is shown as before: a stream of a name that nothing hostile knows."""
        stream = await js.create_stream(name="SAFE", subjects=("safe",))
        await js.publish("safe", b"good")
        ask = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        for port, path, word in (
            (own, "/api/streams/SAFE/messages", b"good"),
            (other, "/api/streams/SAFE/messages", b"good"),
            (own, "/api/connections", b"connections"),
            (other, "/metrics", b"headrace_"),
            (pages, "/jsz?streams=true", b"SAFE"),
            (pages, "/metrics", b"SAFE"),
            (metrics, "/metrics", b"headrace_"),
        ):
            answer = await self.play(port, ask.format(path).encode())
            if not answer.startswith(b"HTTP/1.1 200") or word not in answer:
                raise BrokenPromiseError(
                    f"{path} of port {port} is not as before: {answer[:1000]!r}"
                )
        await js.delete_stream(stream.name)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """What is answered; of a page that goes on for ever, its beginning."""
    answer = b""
    while chunk := await reader.read(STREAMED):
        answer += chunk
        if b"text/event-stream" in answer or len(answer) > 1 << 22:
            break
    return answer


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].rstrip("/"))


async def fuzz(seconds: float, seed: int) -> bool:
    """Whether the promises were kept. Says how much was tried."""
    fuzzed = Fuzzed(seed)
    begun, good = time.monotonic(), True
    try:
        await fuzzed.run(seconds)
    except BrokenPromiseError as error:
        print(error, file=sys.stderr)
        good = False
    print(
        f"console and pages of numbers: {fuzzed.requests:,} requests and {fuzzed.peer_answers:,} answers"
        f" of peers, {fuzzed.commands.total():,} commands in {time.monotonic() - begun:.0f} s,"
        f" seed {seed}: {'good' if good else 'BROKEN'};"
        f" {dict(fuzzed.statuses.most_common())}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the web console and the pages of numbers.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="in all (default: 3600)")
    parser.add_argument("--seed", type=int, default=1, help="of the generators (default: 1)")
    arguments = parser.parse_args()
    return 0 if asyncio.run(fuzz(arguments.seconds, arguments.seed)) else 1


if __name__ == "__main__":
    sys.exit(main())
