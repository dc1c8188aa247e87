"""The examples one after the other, in one folder, on one broker: none takes anything from another."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import guides
import peers
from example_programs import WITHIN_S, started
from headrace.client import JetStream
from waiting import until

EXAMPLES = guides.ROOT / "examples"
WORKER = ("-m", "headrace", "worker")

ENDING: dict[str, tuple[str, ...]] = {
    "messages.py": (),
    "streams.py": (),
    "blocking.py": (),
    "exactly_once.py": (),
    "idempotent.py": ("books.db", "URL"),
    "outbox.py": ("POSTGRES", "URL"),
    "rate_limit.py": (),
    "saga.py": (),
    "scheduled.py": (),
}
"""Programs that end by themselves, with what is typed behind them; their URL if that is nothing."""

STAYING: dict[tuple[str, ...], tuple[str, str]] = {
    (*WORKER, "shop_worker:worker"): ("SHOP", "billing"),
    ("faststream_shop.py",): ("FASTSHOP", "billing"),
    (*WORKER, "traced_shop:worker"): ("TRACED", "billing"),
    (*WORKER, "protobuf_worker:worker"): ("PROTOSHOP", "billing"),
    ("group_worker.py", "a", "URL"): ("ORDERS-billing", "a"),
}
"""Programs that run until they are told to end, and the consumer that they have when they are at work."""

ELSEWHERE = {
    "django_shop.py": "a web shop, of the stream ORDERS as group_worker.py has it (test_web.py)",
    "fastapi_shop.py": "the same",
    "flask_shop.py": "the same",
    "leader.py": "a lock of its own, for two processes (tests/examples/test_leader.py)",
    "parquet_bridge.py": "asks for Spark and for a stream that is there (tests/docs/test_typed_pages.py)",
}


async def kept(js: JetStream) -> dict[str, tuple[set[str], set[str]]]:
    """Of each stream its subjects and its durable consumers; buckets are streams, too."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    async for info in js.streams():
        stream = await js.stream(info.config.name)
        durable = {c.config.durable_name async for c in stream.consumers() if c.config.durable_name}
        found[info.config.name] = (set(info.config.subjects or ()), durable)
    return found


@pytest.fixture
async def takes_nothing(js: JetStream) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """``await takes_nothing(program)`` after each: what was there before it is there as it was."""
    before: dict[str, tuple[set[str], set[str]]] = {}

    async def check(program: str) -> None:
        now = await kept(js)
        for name, (subjects, durable) in before.items():
            assert name in now, f"{program} has removed stream {name}"
            assert now[name][0] == subjects, f"{program} has changed the subjects of {name}"
            assert now[name][1] >= durable, f"{program} has removed a consumer of {name}"
        before.update(now)

    yield check


@pytest.mark.peer
@pytest.mark.timeout(600)  # fourteen programs, one after the other
async def test_the_examples_run_one_after_the_other_on_one_broker(
    reference_server: peers.ServerProcess,
    js: JetStream,
    postgres: str,
    tmp_path: Path,
    takes_nothing: Callable[[str], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    url = reference_server.url
    given = {"URL": url, "POSTGRES": postgres}

    async def end(name: str) -> None:
        """Run a program that ends, in this process: it needs no other Python for that."""
        main = guides.load(EXAMPLES / name).main
        words = [given.get(each, each) for each in ENDING[name] or ("URL",)]
        if inspect.iscoroutinefunction(main):
            await asyncio.to_thread(lambda: asyncio.run(main(*words)))
        else:
            await asyncio.to_thread(main, *words)
        await takes_nothing(name)

    async def stay(command: tuple[str, ...], stream: str, consumer: str) -> None:
        """Start a program that stays, and tell it to end once it is at work."""
        words = [given.get(each, each) for each in command]
        words = [str(EXAMPLES / each) if each.endswith(".py") else each for each in words]
        folders = os.pathsep.join(map(str, (EXAMPLES, EXAMPLES / "protobuf_shop")))
        more = {"PYTHONPATH": folders, "OTEL_SDK_DISABLED": "true"}
        async with started(*words, url=url, log=tmp_path / "log", folder=tmp_path, **more) as one:

            async def is_at_work() -> bool:
                return consumer in (await consumers_of(js)).get(stream, ())

            await until(is_at_work, f"{command} is not at work", within=WITHIN_S)
            by = signal.SIGINT if command[0] == "group_worker.py" else signal.SIGTERM
            assert "Traceback" not in await one.ended(told=True, by=by)
        await takes_nothing(" ".join(command))

    for name in ENDING:
        await end(name)
    for command, place in STAYING.items():
        await stay(command, *place)
    for name in ("outbox.py", "streams.py", "saga.py"):  # what the others left is no hindrance
        await end(name)
    names = set(await kept(js))
    assert {"SHOP", "FASTSHOP", "TRACED", "PROTOSHOP", "OUTBOX", "ORDERS", "PAYMENTS"} <= names


async def consumers_of(js: JetStream) -> dict[str, set[str]]:
    """The names of the consumers of each stream."""
    found: dict[str, set[str]] = {}
    async for name in js.stream_names():
        stream = await js.stream(name)
        found[name] = {each async for each in stream.consumer_names()}
    return found


def test_each_example_is_played_here_or_listed_with_the_reason() -> None:
    programs = {each.name for each in EXAMPLES.glob("*.py")}
    played = {*ENDING, *(each for command in STAYING for each in command if each.endswith(".py"))}
    workers = {f"{command[-1].partition(':')[0]}.py" for command in STAYING if ":" in command[-1]}
    assert programs == (played | workers | set(ELSEWHERE)) - {"protobuf_worker.py"}
