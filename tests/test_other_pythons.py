"""Every Python that is promised runs a broker, both clients and a service, with warnings as errors.

Each has an environment of its own below ours, made once, with msgspec as it is locked. A version of which
there is no interpreter on PATH or below ~/.pyenv is skipped.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from newer_python import environment_of

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))

PROGRAM = """
import asyncio, sys

import headrace
from headrace import sync


async def main(folder):
    async with headrace.Broker(store_dir=folder) as broker, broker.connect() as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        async with js.publisher() as publisher:
            await publisher.send_many((f"s.{n % 3}", b"%d" % n) for n in range(1000))
        consumer = await stream.create_consumer(durable_name="c", ack_wait=30)
        batch = await consumer.fetch(1000)
        await batch.ack()
        kv = await js.create_key_value("B", history=3)
        await kv.put("a", b"1", ttl=60)
        async with await nc.add_service("calc", version="1.0.0") as service:
            await service.add_endpoint("double", lambda message: message.payload * 2)
            print(len(batch), (await kv.get("a")).value, (await nc.request("double", b"2")).payload)
        async with headrace.connect(broker.client_url) as other:
            await other.flush()
            print([name async for name in other.jetstream().stream_names()])


asyncio.run(main(sys.argv[1]))
with sync.Broker() as broker, broker.connect() as connection:
    connection.jetstream().create_object_store("O").put("a", b"x" * 300_000)
    print(len(connection.jetstream().object_store("O").get("a")))
for name in headrace.__all__:
    getattr(headrace, name)
"""


def promised() -> list[int]:
    """The minor versions of the classifiers."""
    text = (ROOT / "pyproject.toml").read_text()
    classifiers = "\n".join(tomllib.loads(text)["project"]["classifiers"])
    return [int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", classifiers)]


def test_it_is_known_what_is_promised() -> None:
    assert promised() == [11, 12, 13, 14]


OTHERS = [minor for minor in promised() if minor != sys.version_info.minor]
BETWEEN = pytest.mark.slow("tests/test_other_pythons.py")
"""What runs on the oldest and on the newest seldom fails on one between them."""


@pytest.mark.parametrize(
    "minor", [*(pytest.param(each, marks=BETWEEN) for each in OTHERS[:-1]), OTHERS[-1]]
)
def test_a_promised_python_runs_everything_that_the_core_install_has(
    minor: int, tmp_path: Path
) -> None:
    python = environment_of(minor)
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    command = [str(python), "-W", "error", "-c", PROGRAM, str(tmp_path / "store")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1000 b'1' b'22'", "['KV_B', 'S']", "300000"]
    assert not done.stderr


def test_nothing_leaves_a_finally_clause() -> None:
    """Python 3.14 warns of ``return``, ``break`` and ``continue`` there when it compiles."""
    leaving = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        if "finally:" in (text := path.read_text())
        for finally_ in finally_clauses(ast.parse(text))
        for node in exits(finally_)
    ]
    assert leaving == []


def finally_clauses(tree: ast.AST) -> list[list[ast.stmt]]:
    return [n.finalbody for n in ast.walk(tree) if isinstance(n, ast.Try) and n.finalbody]


def exits(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that leave ``body``; what is in a loop or a function of its own stays there."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Return | ast.Break | ast.Continue):
            found.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.While):
            inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
            found += exits(inner)
    return found


def test_what_leaves_a_finally_clause_is_found() -> None:
    tree = ast.parse("def f():\n try: pass\n finally:\n  if 1: return 2\n  for x in y: break")
    assert [node.lineno for body in finally_clauses(tree) for node in exits(body)] == [4]
