from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from headrace import Broker
from headrace.cli.group.autoscale import (
    AUTOSCALE_OPTIONS,
    autoscale_command,
    document,
    sentence,
)
from headrace.cli.shared.output import Form
from headrace.cli.shared.verbs import command_of
from headrace.client import JetStream
from headrace.groups import GroupConfigurationError, elastic
from headrace.groups.autoscale import Step
from headrace.groups.scaling import Decision
from waiting import until

DECISION = Decision(
    at_ns=1_700_000_090_250_000_000,
    before=("a",),
    members=("a", "b"),
    reasons=("400 wait", "too far behind for 3 looks"),
    lag=400,
    arrived=10.0,
    handled=5.0,
    behind_s=80.0,
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(store_dir=tmp_path, port=-1) as broker:
        yield broker


@pytest.fixture
async def js(broker: Broker) -> AsyncIterator[JetStream]:
    async with broker.connect() as connection:
        js = connection.jetstream()
        await js.create_stream(
            name="ORDERS", subjects=["orders.*"], storage="memory", allow_direct=True
        )
        await elastic.create(js, "ORDERS", "g", 4)
        yield js


def arguments(*given: str) -> SimpleNamespace:
    command = command_of(arguments, lambda: None, "autoscale", AUTOSCALE_OPTIONS, [])
    words = ["--every", "0.01", "--members", "w-{}", *given]
    where = {"stream": "ORDERS", "group": "g", "form": "text"}
    return SimpleNamespace(**where, **command.make_context("autoscale", words).params)


async def output(js: JetStream, args: SimpleNamespace, lines: int, form: Form) -> list[str]:
    out = io.StringIO()
    args.form = form
    with contextlib.redirect_stdout(out):
        task = asyncio.create_task(autoscale_command(js, args))
        await until(lambda: task.done() or out.getvalue().count("\n") >= lines)
        task.cancel()
        await asyncio.wait([task])
    return out.getvalue().splitlines()


async def test_it_says_what_it_does(js: JetStream) -> None:
    first, second, *_ = await output(js, arguments("--min", "2"), 2, form="text")
    assert first.partition(" ")[2] == "0 members: fewer than 2 members → 2 (+w-0 +w-1): done"
    assert second.partition(" ")[2] == "2 members: a rate takes two looks"
    assert (await elastic.get(js, "ORDERS", "g")).members == ("w-0", "w-1")


async def test_a_dry_run_says_what_it_would_do(js: JetStream) -> None:
    lines = await output(js, arguments("--min", "2", "--dry-run"), 2, form="json")
    for text in lines:
        found = json.loads(text)
        assert found["action"] == "up"
        assert found["problem"] == "dry run"
        assert (found["members"], found["proposed"]) == ([], ["w-0", "w-1"])
    assert (await elastic.get(js, "ORDERS", "g")).members == ()


async def test_each_step_is_a_yaml_document(js: JetStream) -> None:
    lines = await output(js, arguments("--min", "2"), 20, form="yaml")
    found = list(yaml.safe_load_all("\n".join(lines)))
    assert lines[0] == "---"
    assert (found[0]["action"], found[0]["proposed"]) == ("up", ["w-0", "w-1"])


async def test_only_names_with_an_instance_are_added(js: JetStream) -> None:
    args = arguments("--only-live", "--min", "2")
    async with elastic.join(js, "ORDERS", "g", "w-7", lambda message: message.ack()):
        task = asyncio.create_task(autoscale_command(js, args))
        try:
            await until(lambda: _has(js, ("w-7",)))
        finally:
            task.cancel()
            await asyncio.wait([task])


async def _has(js: JetStream, members: tuple[str, ...]) -> bool:
    return (await elastic.get(js, "ORDERS", "g")).members == members


async def test_wrong_bounds_are_refused(js: JetStream) -> None:
    with pytest.raises(GroupConfigurationError, match="maximum is 1; accepted: the minimum"):
        await autoscale_command(js, arguments("--min", "2", "--max", "1"))


async def test_a_minimum_that_cannot_be_is_refused_with_its_reason(js: JetStream) -> None:
    await elastic.add_members(js, "ORDERS", "g", ["old"])
    for words, said in (
        (("--members", "new", "--min", "3"), "minimum is 3; accepted: at most 2, for the pool"),
        (("--min", "5"), "minimum is 5; accepted: at most 4, for the group has 4 partitions"),
    ):
        with pytest.raises(GroupConfigurationError, match=said):
            async with asyncio.timeout(60):
                await autoscale_command(js, arguments(*words))
    assert (await elastic.get(js, "ORDERS", "g")).members == ("old",)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["autoscale", "ORDERS", "g", "--members", "a,b"], "0 members: fewer than 1 members"),
        (["metrics", "ORDERS", "--listen", "127.0.0.1:0"], "metrics at http://127.0.0.1:"),
    ],
)
async def test_ctrl_c_ends_it_without_a_word(
    js: JetStream, broker: Broker, command: list[str], said: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace.cli", "group", *command, "--server", broker.client_url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        assert said in (await process.stdout.readline()).decode()
        process.send_signal(signal.SIGINT)
        rest = (await process.stdout.read()).decode()
        assert await process.wait() == 130
    assert "Traceback" not in rest


def test_a_step_in_words_and_as_a_document() -> None:
    assert sentence(Step(DECISION, applied=True)) == (
        "2023-11-14T22:14:50.250Z 1 member: 400 wait; too far behind for 3 looks → 2 (+b): done"
    )
    assert sentence(Step(None, problem="no answer")) == "- no look: no answer"
    found = document(Step(DECISION, problem="dry run"))
    assert json.loads(json.dumps(found)) == {
        "at": "2023-11-14T22:14:50.250Z",
        "action": "up",
        "applied": False,
        "problem": "dry run",
        "members": ["a"],
        "proposed": ["a", "b"],
        "reasons": ["400 wait", "too far behind for 3 looks"],
        "lag": 400,
        "arrived_per_second": 10.0,
        "handled_per_second": 5.0,
        "behind_seconds": 80.0,
    }
    assert document(Step(None, problem="no answer"))["problem"] == "no answer"
