"""What was published and handled is recorded, compared, and shown with its difference."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import Broker, ConfigurationError, ConsumerConfig, DeadLetter, sync
from headrace.testing import Published, handled, published
from headrace.worker import Delivered, Worker, run

INSTALLED = any(each.value == "headrace.testing.plugin" for each in entry_points(group="pytest11"))


class Order(msgspec.Struct):
    customer: str


@pytest.fixture(scope="module")
def connection() -> Iterator[sync.Connection]:
    with sync.Broker(sync="os") as broker, broker.connect() as connection:
        yield connection


@pytest.fixture
def seen(connection: sync.Connection) -> Iterator[Published]:
    with published(connection, "orders.>") as seen:
        yield seen


def test_what_was_published_equals_subjects_bytes_and_values(
    connection: sync.Connection, seen: Published
) -> None:
    connection.publish("orders.1", b"two apples", headers={"Kind": "fruit"})
    connection.publish("bills.1", b"not recorded")
    connection.publish("orders.2", b'{"customer": "eve"}')
    assert seen == ["orders.1", "orders.2"]
    assert seen == [("orders.1", b"two apples"), ("orders.2", {"customer": "eve"})]
    assert seen == ["orders.1", ("orders.2", Order("eve"))]
    assert seen != ["orders.1"]
    assert seen != ["orders.2", "orders.1"]
    assert seen != ["orders.1", ("orders.2", Order("joe"))]
    assert seen != [("orders.1", {"customer": "eve"}), "orders.2"]
    assert [each.headers.get("Kind") for each in seen] == ["fruit", None]
    assert len(seen) == 2


def test_the_difference_has_a_line_for_each_message(
    connection: sync.Connection, seen: Published
) -> None:
    assert seen.difference([]) == []
    connection.publish("orders.1", b"two apples")
    connection.publish("orders.2", b'{"item":"plums","customer":"eve"}')
    assert seen.difference(["orders.1", "orders.2"]) == []
    wanted = [("orders.1", b"two apples"), ("orders.2", {"customer": "joe"}), "orders.3"]
    lines = seen.difference(wanted)
    assert lines[0] == "  orders.1 b'two apples'"
    assert '- orders.2 {"customer": "joe"}' in lines
    assert '+ orders.2 {"customer": "eve", "item": "plums"}' in lines
    assert lines[-1] == "- orders.3"
    with pytest.raises(ConfigurationError, match=r"message is 5; accepted are a subject, and a"):
        seen.difference([5])


def test_subjects_of_clients_among_themselves_are_left_out_unless_asked_for(
    connection: sync.Connection,
) -> None:
    js = connection.jetstream()
    with published(connection) as seen, published(connection, "$JS.API.>") as api:
        js.create_stream(name="LEFT_OUT", subjects=["left.out"])
        js.publish("left.out", b"1")
        assert seen == [("left.out", b"1")]
        assert api == ["$JS.API.STREAM.CREATE.LEFT_OUT"]
    js.delete_stream("LEFT_OUT")


def test_waiting_ends_with_the_last_message_or_says_what_has_come(
    connection: sync.Connection, seen: Published
) -> None:
    connection.publish("orders.1", b"1")
    assert [each.subject for each in seen.wait(1)] == ["orders.1"]
    with pytest.raises(TimeoutError, match=r"1 of 2 messages within 0\.05 s: orders\.1 b'1'"):
        seen.wait(2, timeout=0.05)


def test_more_than_a_subscription_holds_is_said(
    connection: sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe = connection.subscribe
    monkeypatch.setattr(
        type(connection), "subscribe", lambda self, subject: subscribe(subject, pending_messages=2)
    )
    with published(connection, "many") as seen:
        for _ in range(5):
            connection.publish("many")
        with pytest.raises(AssertionError, match=r"messages of 'many' were lost"):
            assert seen.messages


async def test_what_a_worker_handled_is_recorded_with_what_its_handlers_raised() -> None:
    worker, over = Worker("test"), asyncio.Event()

    @worker.consumer(
        "ORDERS",
        "billing",
        config=ConsumerConfig(filter_subject="orders.*"),
        on_failure=DeadLetter("dead", after=1),
    )
    async def bill(order: Order) -> None:
        if order.customer == "joe":
            raise LookupError("no such customer")

    @worker.consumer("ORDERS", "mail", config=ConsumerConfig(filter_subject="mails.*"))
    def mail(message: Delivered) -> None: ...

    async with Broker(sync="os") as broker, broker.connect() as connection:
        js = connection.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.*", "mails.*", "dead"])
        with handled(worker) as seen:
            running = asyncio.create_task(run(worker, over, servers=broker.client_url))
            await js.publish("orders.1", b'{"customer":"eve"}')
            await asyncio.to_thread(seen.wait, 1, 30)
            await js.publish("orders.2", b'{"customer":"joe"}')
            await asyncio.to_thread(seen.wait, 2, 30)
            await js.publish("mails.1", b"hello")
            await asyncio.to_thread(seen.wait, 3, 30)
            assert seen == [("orders.1", Order("eve")), "orders.2", ("mails.1", b"hello")]
            assert [str(error) for error in seen.errors] == ["no such customer"]
            over.set()
            await running
        assert worker.hooks == ()


def test_handled_wants_a_worker() -> None:
    wrong: Any = 5
    with pytest.raises(ConfigurationError, match=r"worker is 5; accepted is a headrace"):
        handled(wrong).__enter__()


def test_waiting_for_a_handler_says_what_has_come() -> None:
    with handled(Worker("idle")) as seen, pytest.raises(TimeoutError, match=r"0 of 1 .*: nothing"):
        seen.wait(1, timeout=0.01)


DIFFERS = """
def test_it(headrace_published, headrace_sync_connection):
    seen = headrace_published("orders.>")
    headrace_sync_connection.publish("orders.1", b"two apples")
    headrace_sync_connection.flush()
    assert seen == [("orders.1", b"two plums")]
"""


def test_pytest_shows_the_difference(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(DIFFERS)
    plugin = [] if INSTALLED else ["-p", "headrace.testing.plugin"]
    plugin += ["-p", "no:asyncio", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-W", "error", *plugin]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert "published are not the messages expected" in done.stdout
    assert "- orders.1 b'two plums'" in done.stdout
    assert "+ orders.1 b'two apples'" in done.stdout
