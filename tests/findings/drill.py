"""Makes each situation that stands still at a running server, and prints how long each tool took to tell.

    python tests/findings/drill.py --servers headrace nats-server --seconds 150

Server and console are processes with the patience that users have; beside the situations everything else is
at work, of which no tool may tell. Ends with 1 where a tool told nothing, or told of what works.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx2

sys.path.insert(0, str(Path(__file__).parents[1]))

import peers
from findings.situations import SITUATIONS, Work, at_work, leave_a_watch
from headrace.client import connect
from waiting import elapse, until

EVERY_S: Final = 1.0
ACK_WAIT_S: Final = 30.0
HEALTHY: Final = ("BUSY", "ORDERS", "LIVE", "LEFT")

Told = set[tuple[str, str]]
"""Names of findings, and what they are of."""


async def of_doctor(url: str) -> Told:
    """What the command prints."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", "doctor", "--json", "-s", url,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await running.communicate()
    return {(each["name"], each["what"]) for each in json.loads(said) if each["grade"] != "ok"}


async def of_alerts(http: httpx2.AsyncClient, url: str) -> Told:
    """What the console's page of alerts is made of."""
    said = (await http.get(f"{url}/api/alerts")).json()["alerts"]
    return {(each["name"], each["what"]) for each in said}


async def of_page(http: httpx2.AsyncClient, url: str, metric: str) -> Told:
    """What a page for Prometheus has."""
    lines = (await http.get(f"{url}/metrics")).text.splitlines()
    shown = (
        dict(re.findall(r'(\w+)="([^"]*)"', line))
        for line in lines
        if line.startswith(f"{metric}{{")
    )
    return {(each["finding"], each["what"]) for each in shown}


class Drill:
    """One server, its console, and when which tool told what."""

    def __init__(self, tools: dict[str, Callable[[], Awaitable[Told]]]) -> None:
        self.tools = tools
        self.made: dict[str, float] = {}
        self.took: dict[tuple[str, str], float] = {}
        self.wrong: set[str] = set()

    async def listen(self, tool: str, ends: float) -> None:
        """Ask one tool again and again, until it has told everything or the time is over."""
        while time.monotonic() < ends:
            told = await self.tools[tool]()
            now = time.monotonic()
            for name, situation in SITUATIONS.items():
                if name in self.made and (situation.finding, situation.what) in told:
                    self.took.setdefault((name, tool), now - self.made[name])
            for finding, what in told:
                if any(re.search(rf"\b(KV_)?{each}\b", what) for each in HEALTHY):
                    self.wrong.add(f"{tool} told {finding} of {what}, which is well")
            await elapse(EVERY_S, "a tool is asked as often as somebody who looks")

    async def make(self, name: str, work: Work) -> None:
        """Make one situation, and note when."""
        await SITUATIONS[name].make(work)
        self.made[name] = time.monotonic()

    def report(self) -> bool:
        """Print the table; returns whether every tool told everything that it can know."""
        complete = not self.wrong
        print(f"{'situation':40}" + "".join(f"{tool:>18}" for tool in self.tools))
        for name, situation in SITUATIONS.items():
            cells = []
            for tool in self.tools:
                took = self.took.get((name, tool))
                if took is not None:
                    cells.append(f"{took:.0f} s")
                elif tool == "broker metrics" and not situation.by_broker:
                    cells.append("cannot know")
                else:
                    cells.append("NOTHING")
                    complete = False
            print(f"{name:40}" + "".join(f"{cell:>18}" for cell in cells))
        for each in sorted(self.wrong):
            print(f"WRONG: {each}")
        return complete


async def drill(kind: str, folder: Path, seconds: float) -> bool:
    """Play everything at one server."""
    async with contextlib.AsyncExitStack() as stack:
        monitoring, port = peers.free_port(), peers.free_port()
        server = peers.start_either(kind, folder, flags=("-m", str(monitoring)))
        stack.callback(server.stop)
        console = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", "console", "--port", str(port), "-s", server.url,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

        async def end() -> None:
            console.terminate()
            await console.wait()

        stack.push_async_callback(end)
        http = await stack.enter_async_context(httpx2.AsyncClient(verify=False, timeout=30.0))
        at = f"http://127.0.0.1:{port}"

        async def is_up() -> bool:
            with contextlib.suppress(httpx2.TransportError):
                return (await http.get(f"{at}/api/alerts")).status_code == 200
            return False

        await until(is_up, "the console does not answer", within=60.0)
        tools: dict[str, Callable[[], Awaitable[Told]]] = {
            "doctor": lambda: of_doctor(server.url),
            "console alerts": lambda: of_alerts(http, at),
            "console metrics": lambda: of_page(http, at, "headrace_console_finding"),
        }
        if kind == "headrace":
            tools["broker metrics"] = lambda: of_page(
                http, f"http://127.0.0.1:{monitoring}", "headrace_finding"
            )
        connection = await stack.enter_async_context(connect(server.url))
        work = Work(connection.jetstream(), server.url, stack, ACK_WAIT_S)
        done = Drill(tools)
        store = await stack.enter_async_context(at_work(work))

        async def go_on() -> None:
            while True:
                await store()
                await elapse(EVERY_S, "messages come now and then")

        work.begin(go_on())
        await leave_a_watch(work)
        ends = time.monotonic() + seconds
        listening = [asyncio.create_task(done.listen(tool, ends)) for tool in tools]
        await asyncio.gather(*(done.make(name, work) for name in SITUATIONS))
        await asyncio.gather(*listening)
        print(f"\n{kind}, within {seconds:g} s:")
        return done.report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--servers", nargs="+", choices=peers.EITHER, default=peers.EITHER[::-1])
    parser.add_argument("--seconds", type=float, default=150.0)
    args = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("NATS_")]:
        del os.environ[name]
    # Whoever ends it, what it has started is ended.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    complete = True
    for kind in args.servers:
        with tempfile.TemporaryDirectory(prefix="headrace-drill-") as folder:
            complete &= asyncio.run(drill(kind, Path(folder), args.seconds))
    sys.exit(not complete)


if __name__ == "__main__":
    main()
