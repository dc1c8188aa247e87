"""Fuzz a running job service: what endpoints, producers, workers, proxies, disks and databases hand in.

    python fuzz/jobs_service.py                       an hour, half on SQLite and half on PostgreSQL
    python fuzz/jobs_service.py --seconds 600 --seed 7
    python fuzz/jobs_service.py --only sqlite

`headrace jobs serve` runs as a process of its own. Hostile requests come over raw sockets; its push consumers
call hostile endpoints, plain and over TLS with odd certificates; its archive disappears and comes back, and
its disk is full for moments; strangers notify through PostgreSQL. The promise: it never ends, never answers
500, never logs a traceback, and in the end still delivers. A request that is answered 500 is kept in
``fuzz/kept/jobs``, where the tests play it from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from headrace.jobs.client import AsyncJobsClient, JobsError
from jobs_answers import HostileEndpoint, certificates
from jobs_endpoint import Endpoint
from jobs_requests import Shared, request, text

KEPT: Final = Path(__file__).resolve().parent / "kept" / "jobs"
CLIENTS: Final = 12
HERE: Final = "127.0.0.1"
ANSWER_S: Final = 20.0
CONFIG: Final = """
port = 0
database = "{database}"
rational_delay_seconds = 0.1
connection_timeout_seconds = 1
schedule_min_delay_seconds = 0
max_retries = 3
retry_delays_seconds = [0.02]
allow_networks = ["127.0.0.0/8", "::1/128"]
keep_messages_days = 0.00001
keep_dead_days = 0.00001
keep_attempts_days = 0.00001
archive_directory = "{archive}"
drain_seconds = 2
"""


class BrokenPromiseError(Exception):
    """The service ended, answered 500, or lost its mind."""


class Fuzzed:
    """One service under fire, and what was seen of it."""

    def __init__(self, directory: Path, database: str, seed: int) -> None:
        self.directory = directory
        self.seed = seed
        self.requests = 0
        self.statuses: collections.Counter[str] = collections.Counter()
        self.endpoint_answers = 0
        self._archive = directory / "archive"
        self._archive.mkdir()
        self._config = directory / "jobs.toml"
        self._config.write_text(CONFIG.format(database=database, archive=self._archive))
        self._database = database
        self._shared = Shared()
        self._often = random.Random(f"mending {seed}")
        self._log = directory / "log"

    async def run(self, seconds: float, requests: int | None = None) -> None:
        """Fire until the time is over, or so many requests were sent; then look whether it still works."""
        root, contexts = certificates(self.directory)
        hostile = HostileEndpoint(f"answers {self.seed}", contexts)
        async with (
            hostile,
            Endpoint() as honest,
            self._service(root) as url,
            AsyncJobsClient(url, timeout_s=ANSWER_S) as client,
        ):
            await self._define(client, honest.url, hostile.urls)
            others = [
                asyncio.create_task(self._for_ever(part, pause_s))
                for part, pause_s in (
                    (lambda: self._mend(client, hostile.urls), 0.5),
                    (lambda: self._publish(client), 0.01),
                    (self._disturb, 1.0),
                )
            ]
            try:
                ends = time.monotonic() + seconds
                await asyncio.gather(*(self._fire(n, ends, requests) for n in range(CLIENTS)))
            finally:
                for other in others:
                    other.cancel()
                await asyncio.gather(*others, return_exceptions=True)
            self._undisturb()
            await self._still_works(client, honest)
            self.endpoint_answers = hostile.answers

    @contextlib.asynccontextmanager
    async def _service(self, root: Path) -> AsyncIterator[str]:
        # Not into a file of its own: what fills its disk for a moment would refuse its log, too.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", "jobs", "serve", "--config", str(self._config)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "SSL_CERT_FILE": str(root)},
        )
        if self._process.stdout is None or self._process.stderr is None:
            raise AssertionError("a pipe was asked for")
        copying = asyncio.create_task(self._copy_log(self._process.stderr))
        try:
            url = (await self._process.stdout.readline()).decode().split()[-1]
            self.port = int(url.rpartition(":")[2])
            yield url
            self.check()
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                raise BrokenPromiseError("it did not end within 20 s of SIGTERM") from None
            finally:
                await copying
        if self._process.returncode:
            raise BrokenPromiseError(f"it ended with {self._process.returncode}\n{self._tail()}")

    async def _copy_log(self, said: asyncio.StreamReader) -> None:
        with self._log.open("wb", buffering=0) as log:
            while chunk := await said.read(65536):
                log.write(chunk)

    def check(self) -> None:
        """Raise if it ended, or has logged what it did not expect."""
        if self._process.returncode is not None:
            raise BrokenPromiseError(f"it ended: {self._process.returncode}\n{self._tail()}")
        found = traceback_in(self._log.read_text("utf-8", "replace"))
        if found is not None:
            raise BrokenPromiseError(f"a traceback in its log\n{found}")

    def _tail(self) -> str:
        return self._log.read_text("utf-8", "replace")[-6000:]

    def keep_log(self) -> Path:
        """Copy the log to where it outlives the directory of this run."""
        descriptor, kept = tempfile.mkstemp(".log", f"headrace-fuzz-jobs-{self.seed}-")
        os.close(descriptor)
        return Path(shutil.copyfile(self._log, kept))

    async def play(self, data: bytes, *, whole: bool = True, source: str = HERE) -> bytes:
        """Send ``data`` from an address and return what is answered; a 500 breaks the promise.

        If it is not a ``whole`` request, our end is closed, so that nobody waits for the rest.
        """
        answer = b""
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(
                    HERE, self.port, local_addr=(source, 0)
                )
                try:
                    writer.write(data)
                    if not whole:
                        writer.write_eof()
                    answer = await reader.read(1 << 20)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise BrokenPromiseError(f"no answer within {ANSWER_S:g} s to {data[:500]!r}") from None
        except OSError:
            self.statuses["closed"] += 1
            self.check()
        self.requests += 1
        status = answer[9:12].decode("latin-1") or "none"
        self.statuses[status] += 1
        if status == "500":
            KEPT.mkdir(parents=True, exist_ok=True)
            path = KEPT / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
            path.write_bytes(data)
            raise BrokenPromiseError(f"500, kept as {path}: {data[:500]!r}\n{self._tail()}")
        return answer

    async def _fire(self, number: int, ends: float, requests: int | None) -> None:
        rng = random.Random(f"{self.seed} {number}")
        while time.monotonic() < ends and (requests is None or self.requests < requests):
            data, whole = request(rng, self._shared)
            self._shared.learn(await self.play(data, whole=whole, source=stranger(rng)))
            if rng.random() < 0.002:
                self.check()

    async def _for_ever(self, part: Callable[[], Any], pause_s: float) -> None:
        while True:
            with contextlib.suppress(JobsError):  # 503 while the disk is full; a changed definition
                await part()
            await asyncio.sleep(pause_s)

    async def _define(self, client: AsyncJobsClient, honest: str, hostile: list[str]) -> None:
        for producer in ("p", "p2", "sure"):
            await client.put_producer(producer, token="pt")
        await client.put_channel("safe", token="ct")
        await client.put_consumer("safe", "pull", kind="pull", token="kt")
        await client.put_consumer("safe", "push", callback_url=honest, token="kt")
        await self._mend(client, hostile)

    async def _mend(self, client: AsyncJobsClient, hostile: list[str]) -> None:
        """Define again what hostile requests may have changed."""
        settings = {
            "timeout_s": 1.0,
            "breaker": {"failures": 1_000_000, "open_s": 0.1, "disable_after_s": 1e9},
            "retry": {"kind": "schedule", "delays_s": [0.02]},
            "rate_per_s": 0.0,
            "concurrency": 20,
        }
        await client.put_producer("p", token="pt")
        for channel in ("f0", "f1"):
            await client.put_channel(channel, token="ct")
            await client.put_consumer(channel, "pull", kind="pull", token="kt")
            for number, url in enumerate(hostile):
                name = f"push{number}"
                if self._often.random() < 0.5:
                    # A new lane has not been asked to wait for an hour.
                    await self._delete(channel, name)
                await client.put_consumer(channel, name, kind="push", callback_url=url, token="kt")
                await client.patch_consumer(
                    channel, name, settings=settings, enable=True, paused=False, max_retries=2
                )

    async def _delete(self, channel: str, consumer: str) -> None:
        path = f"/channel/{channel}/consumer/{consumer}".encode()
        head = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        answer = await self.play(b"GET /v2" + path + head + b"\r\n")
        if found := re.search(rb"(?i)etag: ([^\r]+)", answer):
            await self.play(b"DELETE " + path + head + b"If-Match: " + found[1] + b"\r\n\r\n")

    async def _publish(self, client: AsyncJobsClient) -> None:
        rng = random.Random()
        await client.publish(
            rng.choice(("f0", "f1")),
            text(rng) or b"x",
            channel_token="ct",
            producer="sure",
            producer_token="pt",
            ordering_key=rng.choice((None, None, "key")),
        )

    async def _disturb(self) -> None:
        """Take the archive away and bring it back; fill the disk for a moment; notify as a stranger."""
        rng = random.Random()
        aside = self._archive.with_suffix(".aside")
        if aside.exists():
            aside.rename(self._archive)
        elif self._archive.exists():
            self._archive.rename(aside)
        if self._database.startswith("sqlite"):
            _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (8192, hard))
            await asyncio.sleep(0.05)
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        else:
            import psycopg

            payload = text(rng).decode("utf-8", "replace").replace("\0", "") + "["
            async with await psycopg.AsyncConnection.connect(
                self._database, autocommit=True
            ) as stranger:
                await stranger.execute("SELECT pg_notify('headrace_jobs', %s)", (payload[:7000],))

    def _undisturb(self) -> None:
        _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (hard, hard))

    async def _still_works(self, client: AsyncJobsClient, honest: Endpoint) -> None:
        """A message reaches a worker and an endpoint, and nothing that was not expected was counted."""
        self.check()
        before = len(honest.calls)
        await client.publish(
            "safe", b"good", channel_token="ct", producer="sure", producer_token="pt"
        )
        await honest.wait_for(before + 1, 20)
        queue = client.queue("safe", "pull", channel_token="ct", consumer_token="kt")
        (job,) = await queue.claim(1, wait_s=5)
        (result,) = await queue.complete([job])
        answer = await self.play(
            b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        odd = [
            line
            for line in answer.decode().splitlines()
            if line.startswith("push_unexpected_total{") and not line.endswith(" 0")
        ]
        if job.payload != b"good" or result.status != 200 or odd:
            raise BrokenPromiseError(f"it does not work as before: {result} {odd}\n{self._tail()}")


def stranger(rng: random.Random) -> str:
    """Where somebody comes from: mostly an address that is seldom seen.

    After too many wrong tokens the service looks at no more of one address; were it that of all strangers,
    nothing else would be tried. Only Linux has all of 127.0.0.0/8.
    """
    if sys.platform != "linux":
        return HERE
    often = rng.random() < 0.05
    return "127.1.0.1" if often else f"127.2.{rng.randrange(256)}.{rng.randrange(1, 255)}"


def traceback_in(log: str) -> str | None:
    """The first traceback of a log with what is around it."""
    at = log.find("Traceback")
    return None if at < 0 else log[max(0, at - 2000) : at + 8000]


async def fuzz(database: str, seconds: float, seed: int) -> bool:
    """Whether the promises were kept. Says how much was tried."""
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/jobs.db" if database == "sqlite" else database
        fuzzed = Fuzzed(Path(directory), url, seed)
        begun, good = time.monotonic(), True
        try:
            await fuzzed.run(seconds)
        except BrokenPromiseError as error:
            print(error, file=sys.stderr)
            print(f"the whole log: {fuzzed.keep_log()}", file=sys.stderr)
            good = False
        took = time.monotonic() - begun
        print(
            f"jobs on {database.partition(':')[0]}: {fuzzed.requests:,} requests and"
            f" {fuzzed.endpoint_answers:,} answers of endpoints in {took:.0f} s, seed {seed}:"
            f" {'good' if good else 'BROKEN'}; {dict(fuzzed.statuses.most_common())}"
        )
        return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz a running job service.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="in all (default: 3600)")
    parser.add_argument("--seed", type=int, default=1, help="of the generators (default: 1)")
    parser.add_argument(
        "--only", choices=["sqlite", "postgres"], help="one database (default: both)"
    )
    arguments = parser.parse_args()
    databases = [arguments.only] if arguments.only else ["sqlite", "postgres"]
    good = True
    for name in databases:
        seconds = arguments.seconds / len(databases)
        if name == "sqlite":
            good &= asyncio.run(fuzz(name, seconds, arguments.seed))
            continue
        from postgres_server import PostgresServer

        server = PostgresServer()
        try:
            server.start()
            good &= asyncio.run(fuzz(server.create("jobs"), seconds, arguments.seed))
        finally:
            server.remove()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
