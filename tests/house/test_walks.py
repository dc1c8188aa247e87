"""The walks of the architecture page are those that a message takes: by these files, in this order."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from types import FrameType

from headrace import Broker, connect
from headrace.client import Consumer

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


@cache
def methods() -> dict[str, set[str]]:
    """What each class that the page names has: methods, and names that its body or its methods set."""
    found: dict[str, set[str]] = {}
    named = set(re.findall(r"`([A-Z]\w+)", PAGE))
    for path in SRC.rglob("*.py"):
        text = path.read_text()
        if named.isdisjoint(re.findall(r"\bclass (\w+)", text)):
            continue  # reading all of them as Python takes seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_names_of(node))
    return found


def _names_of(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.id if isinstance(each, ast.Name) else each.attr


def test_each_method_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([A-Z]\w+)\.([a-z_]\w*)\b", PAGE)
    assert len(named) > 5
    known = methods()
    missing = [f"{kind}.{name}" for kind, name in named if name not in known.get(kind, set())]
    assert missing == []


def test_each_class_that_the_page_names_is_there() -> None:
    walks = PAGE[PAGE.index("## Three walks") : PAGE.index("Rules of these paths")]
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", walks))
    assert len(named) > 10
    assert named - methods().keys() == set()


def files_of(walk: str) -> list[list[str]]:
    """The files that each step of a walk names."""
    text = PAGE.partition(f"### {walk}")[2].partition("\n###")[0].partition("\nRules of")[0]
    steps = re.split(r"(?m)^\d+\. ", text)[1:]
    return [re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", step) for step in steps]


@contextmanager
def entered() -> Iterator[list[str]]:
    """The files of the broker whose functions are called meanwhile on this thread, call by call."""
    found: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and "/headrace/broker/" in name:
            found.append(name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def check(walk: str, found: list[str]) -> None:
    """Each file that the walk names is entered, after the files of the steps before."""
    begins = -1
    for step in files_of(walk):
        places = {
            name: next(
                (at for at, path in enumerate(found) if at > begins and path.endswith(f"/{name}")),
                None,
            )
            for name in step
        }
        assert None not in places.values(), f"not entered after the step before: {places}"
        begins = min((at for at in places.values() if at is not None), default=begins)


async def test_a_message_takes_the_walks_of_the_page(tmp_path: Path) -> None:
    """Over a socket: published, pulled, acknowledged, with a work queue that lets go of it then."""
    async with Broker(store_dir=tmp_path) as broker, await connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"], retention="workqueue")
        consumer = await stream.create_consumer(name="c")
        waiting = asyncio.create_task(consumer.fetch(1, max_wait=60))
        await until_pulled(consumer)
        with entered() as found:
            await js.publish("s.a", b"x", msg_id="1", expected_stream="S")
        check("A publish, from PUB to PubAck", found)
        for message in await waiting:
            await message.ack_sync()
        await js.publish("s.b", b"x")
        with entered() as found:
            [message] = await consumer.fetch(1, max_wait=60)
        check("A pull, from request to MSG", found)
        with entered() as found:
            await message.ack_sync()
        check("An acknowledgement", found)
        assert (await stream.info()).state.messages == 0


async def until_pulled(consumer: Consumer) -> None:
    while not (await consumer.info()).num_waiting:
        await asyncio.sleep(0)


def test_the_walks_name_files() -> None:
    publish, pull, ack = [
        len(set(chain.from_iterable(files_of(walk))))
        for walk in re.findall(r"(?m)^### (.*)$", PAGE[PAGE.index("## Three walks") :])[:3]
    ]
    assert 7 <= publish <= 10
    assert 6 <= pull <= 8
    assert ack >= 1
