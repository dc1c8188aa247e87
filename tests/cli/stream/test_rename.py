"""``headrace stream rename``, at either server: nothing is lost, whatever interrupts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import leftovers
import peers
from headrace import StreamSource, sync
from headrace.cli.stream import rename
from headrace.groups import PartitioningFilter
from headrace.sync import groups
from waiting import until_here

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def new(js: sync.JetStream, either_server: peers.ServerProcess) -> None:
    leftovers.clear(either_server, {"ORDERS", "SALES"})


def fill(js: sync.JetStream, **config: Any) -> None:
    js.create_stream(name="ORDERS", subjects=["orders.>"], metadata={"team": "web"}, **config)
    for number in range(6):
        js.publish(f"orders.{number}", b"%d" % number)
    consumer = js.create_consumer("ORDERS", durable_name="billing", ack_wait=1.0)
    for message in consumer.fetch(3):
        if message.payload != b"1":
            message.ack()
    until_here(lambda: consumer.info().num_ack_pending == 1, "the acknowledgements")
    js.create_consumer("ORDERS", durable_name="idle", deliver_policy="new")


def is_as_before(js: sync.JetStream) -> bool:
    config = js.stream("ORDERS").info().config
    told = {key: value for key, value in config.metadata.items() if not key.startswith("_nats")}
    paused = [each.name for each in js.stream("ORDERS").consumers() if each.paused]
    js.publish("orders.still", b"6")
    return (config.subjects, told, paused) == (("orders.>",), {"team": "web"}, [])


def test_a_stream_and_its_consumers_go_on_under_another_name(
    at_server: Run, js: sync.JetStream
) -> None:
    fill(js)
    created = js.stream("ORDERS").get_message(1).timestamp_ns
    js.stream("ORDERS").delete_message(5)
    done = at_server("stream", "rename", "ORDERS", "SALES", "--force", "--wait", "0")
    assert (done.status, done.out.splitlines(), done.err.splitlines()) == (
        0,
        ["stream ORDERS is SALES now, with 5 messages and 2 consumers"],
        ["1 delivered message not acknowledged yet: delivered again, from SALES"],
    )
    assert list(js.stream_names()) == ["SALES"]
    moved = js.stream("SALES")
    assert moved.get_message(1).timestamp_ns == created
    assert js.publish("orders.next", b"6").seq == 7
    told = moved.info().config.metadata
    assert {key for key in told if not key.startswith("_nats")} == {"team"}
    consumer = moved.consumer("billing")
    came: list[bytes] = []
    while len(came) < 4:
        for message in consumer.fetch(4, max_wait=5):
            came.append(message.payload)
            message.ack()
    assert sorted(came) == [b"1", b"3", b"5", b"6"]
    assert not any(each.paused for each in moved.consumers())


def test_acknowledgements_under_way_are_waited_for(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["orders.>"], retention="workqueue")
    js.publish("orders.1", b"1")
    consumer = js.create_consumer("ORDERS", durable_name="billing")
    [message] = consumer.fetch(1)
    waited: list[float] = []

    async def settle(stream: Any, within_s: float) -> int:
        message.ack()
        waited.append(within_s)
        return await real(stream, within_s)

    real = rename.settle
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rename, "settle", settle)
        done = at_server("stream", "rename", "ORDERS", "SALES", "--force")
    assert (done.status, done.err, waited) == (0, "", [10.0])
    assert js.stream("SALES").info().state.messages == 0


def test_a_dry_run_and_a_no_change_nothing(at_server: Run, js: sync.JetStream) -> None:
    fill(js)
    [line] = at_server("stream", "rename", "ORDERS", "SALES", "--dry-run").lines
    assert line.startswith("would rename stream ORDERS to SALES, with 6 messages (")
    done = at_server("stream", "rename", "ORDERS", "SALES", answer="n\n")
    assert done.status == 1
    assert is_as_before(js)


@pytest.mark.parametrize("step", ["settle", "_transfer", "stop"])
def test_a_failure_takes_everything_back(at_server: Run, js: sync.JetStream, step: str) -> None:
    fill(js)
    real = getattr(rename, step)

    async def fails(*given: Any) -> Any:
        if step == "stop":
            await real(*given)
        raise rename.RenameError("no more room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rename, step, fails)
        done = at_server("stream", "rename", "ORDERS", "SALES", "--force", "--wait", "0")
    assert done.status == 1
    assert "no more room" in done.err
    assert list(js.stream_names()) == ["ORDERS"]
    assert is_as_before(js)


@pytest.mark.parametrize("step", ["settle", "_transfer", "finish", "deleted"])
def test_after_a_crash_the_same_command_goes_on(
    at_server: Run, js: sync.JetStream, step: str
) -> None:
    class Crash(BaseException):
        """Nothing runs after it."""

    async def crashes(*given: Any) -> Any:
        if step == "deleted":
            js.delete_stream("ORDERS")
        raise Crash

    async def nothing(*given: Any) -> None: ...

    fill(js)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rename, "finish" if step == "deleted" else step, crashes)
        patch.setattr(rename, "_take_back", nothing)
        with pytest.raises(Crash):
            at_server("stream", "rename", "ORDERS", "SALES", "--force", "--wait", "0")
    done = at_server("stream", "rename", "ORDERS", "SALES", "--force", "--wait", "0")
    assert done.status == 0, done
    assert list(js.stream_names()) == ["SALES"]
    assert js.publish("orders.next", b"6").seq == 7
    assert {each.name for each in js.stream("SALES").consumers() if not each.paused} == {
        "billing",
        "idle",
    }


def test_what_knows_the_stream_by_its_name_is_told(at_server: Run, js: sync.JetStream) -> None:
    def refused(name: str, new: str = "SALES") -> str:
        done = at_server("stream", "rename", name, new, "--force")
        assert done.status == 1, done
        return str(done.err)

    js.create_key_value("LAST")
    assert "KV_LAST is a bucket" in refused("KV_LAST")
    js.create_stream(name="ORDERS", subjects=["orders.*"])
    js.create_stream(name="COPY", mirror=StreamSource(name="ORDERS"))
    assert "stream COPY copies from other streams" in refused("COPY")
    assert "would lose their position: COPY" in refused("ORDERS")
    assert "there is a stream COPY already" in refused("ORDERS", "COPY")
    js.delete_stream("COPY")
    groups.elastic.create(
        js, "ORDERS", "billing", 4, partitioning_filters=[PartitioningFilter("orders.*", (1,))]
    )
    assert "know it by its name: billing" in refused("ORDERS")
    done = at_server("stream", "rename", "ORDRES", "SALES", "--force")
    assert (done.status, "did you mean 'ORDERS'" in done.err) == (1, True), done
