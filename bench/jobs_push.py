"""How fast one process of the job service pushes: a hundred endpoints of 10 ms each, and keys in order.

    python bench/jobs_push.py                          # SQLite and PostgreSQL
    python bench/jobs_push.py --only postgresql --what plain --calls 20000

The jobs are there before the service starts. The endpoints are a process of their own, one port each; each
waits 10 ms before it answers 200. A rate is what they answered between the first call and the last.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from contextlib import closing

import cpu
from headrace.jobs.client import JobsClient, OutgoingMessage
from jobs import define, fill, report, running
from jobs_databases import NAMES, Database, databases
from jobs_single import Meter, service
from waiting import until

ENDPOINTS = 100
KEYS = 100
TAKES_S = 0.01
WITHIN_S = 300.0
# Answers 200 after a while; a line on its input asks how many, and between which two moments.
SERVER = """
import asyncio, sys, time
class Endpoint(asyncio.Protocol):
    count = first = last = 0
    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""
    def data_received(self, data):
        Endpoint.first = Endpoint.first or time.perf_counter()
        self.buffer += data
        while (head := self.buffer.find(b"\\r\\n\\r\\n")) >= 0:
            length = int(self.buffer[:head].split(b"Content-Length: ")[1].split(b"\\r\\n")[0])
            if len(self.buffer) < head + 4 + length:
                return
            self.buffer = self.buffer[head + 4 + length:]
            loop.call_later(float(sys.argv[2]), self.answer)
    def answer(self):
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
        Endpoint.count += 1
        Endpoint.last = time.perf_counter()
def asked():
    if not sys.stdin.readline():
        loop.stop()
        return
    print(Endpoint.count, Endpoint.last - Endpoint.first, flush=True)
async def main():
    count = int(sys.argv[1])
    made = [await loop.create_server(Endpoint, "127.0.0.1", 0, backlog=1024) for _ in range(count)]
    print(*(server.sockets[0].getsockname()[1] for server in made), flush=True)
    loop.add_reader(sys.stdin.fileno(), asked)
try:
    import uvloop
    loop = uvloop.new_event_loop()
except ImportError:
    loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(main())
loop.run_forever()
"""


class Endpoints:
    """A process with so many ports."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-c", SERVER, str(count), str(TAKES_S)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ports = list(map(int, self._line().split()))

    @property
    def pid(self) -> int:
        return self._process.pid

    def answered(self) -> tuple[int, float]:
        """How many calls, and the seconds between the first and the last."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        count, seconds = self._line().split()
        return int(count), float(seconds)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


async def measure(
    url: str,
    name: str,
    postmaster: int | None,
    what: str,
    endpoints: Endpoints,
    calls: int,
    *flags: str,
) -> None:
    async with service(url, "--allow-network", "127.0.0.0/8", *flags) as (_, pid):
        meter, begun = Meter(pid, postmaster), cpu.of_process(endpoints.pid)
        await until(
            lambda: endpoints.answered()[0] >= calls, f"{calls} calls did not come", within=WITHIN_S
        )
        service_s, database_s = meter.seconds()
        answered, seconds = endpoints.answered()
    report(
        bench=what,
        database=name,
        calls=answered,
        calls_per_s=round(answered / seconds),
        service_us=round(service_s / answered * 1e6),
        database_us=round(database_s / answered * 1e6),
        endpoints_us=round((cpu.of_process(endpoints.pid) - begun) / answered * 1e6),
        load=os.getloadavg()[0],
    )


async def bench_plain(url: str, name: str, postmaster: int | None, calls: int) -> None:
    """A consumer for each endpoint, and as many jobs for each."""
    endpoints = Endpoints(ENDPOINTS)
    try:
        async with running(url) as runtime:
            channel, _ = await define(runtime)
        async with service(url, settings="push = false") as (address, _):
            with JobsClient(address) as client:
                for port in endpoints.ports:
                    callback = f"http://127.0.0.1:{port}/"
                    client.put_consumer("c", f"h{port}", callback_url=callback)
        async with running(url) as runtime:
            consumers = await runtime.database.read(lambda tx: tx.all("list_push_consumers"))
            for row in consumers:
                tag = f"t{row['seq']}"
                fill(url, calls // ENDPOINTS, channel, row["seq"], tag, runtime.now_us())
        what = f"push to {ENDPOINTS} endpoints of {TAKES_S * 1000:g} ms"
        await measure(url, name, postmaster, what, endpoints, calls)
    finally:
        endpoints.close()


async def bench_keyed(url: str, name: str, postmaster: int | None, calls: int) -> None:
    """One endpoint, and jobs of a hundred keys, each key in order."""
    endpoints = Endpoints(1)
    try:
        async with running(url) as runtime:
            await define(runtime)
        async with service(url, settings="push = false") as (address, _):
            with JobsClient(address) as client:
                callback = f"http://127.0.0.1:{endpoints.ports[0]}/"
                client.put_consumer("c", "h", callback_url=callback)
                client.patch_consumer("c", "h", settings={"concurrency": KEYS})
                for begin in range(0, calls, 500):
                    client.publish_batch(
                        "c",
                        [
                            OutgoingMessage(payload=b"{}", ordering_key=f"k{number % KEYS}")
                            for number in range(begin, begin + 500)
                        ],
                        channel_token="ct",
                        producer="p",
                        producer_token="pt",
                    )
        what = f"push in order of {KEYS} keys, endpoints of {TAKES_S * 1000:g} ms"
        await measure(url, name, postmaster, what, endpoints, calls)
    finally:
        endpoints.close()


BENCHES = {"plain": bench_plain, "keyed": bench_keyed}


def run(database: Database, args: argparse.Namespace) -> None:
    for what, bench in BENCHES.items():
        if args.what in (None, what):
            calls = args.calls // 4 if what == "keyed" else args.calls
            for round_ in range(args.rounds):
                url = database.make(f"{what}{round_}")
                asyncio.run(bench(url, database.name, database.pid, calls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--what", choices=tuple(BENCHES))
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with closing(databases(args.only)) as each:
        for database in each:
            run(database, args)


if __name__ == "__main__":
    main()
