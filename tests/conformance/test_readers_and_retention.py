"""What becomes of a message by retention, by who reads beside its worker, and by when: on both servers.

Each cell says what is right before it is run. A copy (a mirror, a source, the work queue of an elastic group)
is a reader beside the workers: it takes nothing from them, and what a worker has acknowledged stays until the
copy has it. What no worker's consumer wants leaves a work queue when it is copied. ``make matrices`` plays
every cell, ``make test`` some of each row and column.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client

import peers
from conformance.test_partitioned_groups import SECOND, ask, create
from headrace.broker.server import Broker
from portions import some
from waiting import until

SUBJECTS = ["j.a", "j.b"] * 3
REMOVING = ["workqueue", "interest"]
READERS: dict[str, dict[str, Any]] = {
    "mirror": {"mirror": {"name": "W"}},
    "source": {"sources": [{"name": "W"}]},
    "filtered source": {"sources": [{"name": "W", "filter_subject": "j.a"}]},
    "elastic group": {
        "sources": [
            {
                "name": "W",
                "subject_transforms": [
                    {"src": "j.*", "dest": "{{Partition(2,1)}}.j.{{Wildcard(1)}}"}
                ],
            }
        ],
        "retention": "workqueue",
        "discard": "new",
        "max_msgs": 1000,
    },
    "direct get": {},
}
PATIENCE_S = 30  # nats-server's copies begin, and say what they have, some seconds later


async def state(connection: Client, stream: str) -> dict[str, Any]:
    found: dict[str, Any] = (await ask(connection, f"STREAM.INFO.{stream}"))["state"]
    return found


async def holds(connection: Client, stream: str, messages: int) -> None:
    """Wait until a stream has so many messages."""

    async def is_so() -> bool:
        return bool((await state(connection, stream))["messages"] == messages)

    try:
        await until(is_so, within=PATIENCE_S)
    except AssertionError:
        pytest.fail(f"{stream} has {await state(connection, stream)}, not {messages} messages")


async def has_made(connection: Client, stream: str, messages: int) -> None:
    """Wait until a stream has given so many sequences."""

    async def is_so() -> bool:
        return bool((await state(connection, stream))["last_seq"] >= messages)

    await until(is_so, f"{stream} never had {messages} messages", within=PATIENCE_S)


async def publish(connection: Client) -> None:
    for number, subject in enumerate(SUBJECTS):
        await connection.request(subject, str(number).encode(), timeout=5)


async def employ(connection: Client, **config: Any) -> None:
    """A worker's consumer."""
    settings = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * SECOND, **config}
    body = {"stream_name": "W", "config": settings}
    answer = await ask(connection, "CONSUMER.CREATE.W.C", body)
    assert "error" not in answer, answer


async def work(connection: Client, count: int, answer: bytes = b"+ACK") -> list[str]:
    """What a worker gets, of so many it asks for, each answered; ``b""``: not at all."""
    subscription = await (js := connection.jetstream()).pull_subscribe_bind("C", "W")
    got: list[str] = []
    try:
        while len(got) < count:
            for message in await subscription.fetch(count - len(got), timeout=10):
                got.append(message.data.decode())
                if answer:
                    await connection.request(message.reply, answer, timeout=5)
    except nats.errors.TimeoutError:
        pass
    await subscription.unsubscribe()
    assert js
    return got


async def read(connection: Client, reader: str, **config: Any) -> int:
    """Have the reader come; returns how many messages it is to have at the end."""
    if reader == "direct get":
        answer = await connection.request("$JS.API.DIRECT.GET.W.j.a", timeout=5)
        assert answer.headers
        return 0
    await create(connection, "T", **{**READERS[reader], **config})
    return 3 if reader == "filtered source" else 6


async def died(connection: Client) -> bool:
    """Whether the worker's consumer has nothing in hand any more."""
    return bool((await ask(connection, "CONSUMER.INFO.W.C"))["num_ack_pending"] == 0)


EVERYTHING = sorted(str(number) for number in range(6))
COPIES = ["mirror", "source", "elastic group"]


@pytest.mark.parametrize(
    ("retention", "reader", "moment"),
    some(itertools.product(["limits", *REMOVING], READERS, ["with a backlog", "beside"]), 3),
)
async def test_a_reader_takes_nothing_from_a_worker(
    connection: Client, retention: str, reader: str, moment: str
) -> None:
    await create(connection, "W", subjects=["j.>"], retention=retention, allow_direct=True)
    await employ(connection)
    if moment == "with a backlog":
        await publish(connection)
        copied = await read(connection, reader)
    else:
        copied = 0 if reader == "direct get" else await read(connection, reader)
        await publish(connection)
    if copied:
        await holds(connection, "T", copied)
    assert (await state(connection, "W"))["messages"] == 6  # nobody was given anything yet
    assert sorted(await work(connection, 6)) == EVERYTHING
    await holds(connection, "W", 6 if retention == "limits" else 0)
    if copied:
        await holds(connection, "T", copied)


@pytest.mark.parametrize(("reader", "retention"), some(itertools.product(COPIES, REMOVING), 3))
async def test_a_job_that_is_given_back_comes_again_beside_a_copy(
    connection: Client, retention: str, reader: str
) -> None:
    await create(connection, "W", subjects=["j.>"], retention=retention)
    await employ(connection, ack_wait=SECOND)
    await publish(connection)
    await holds(connection, "T", await read(connection, reader))
    assert await work(connection, 2, b"-NAK") == ["0", "1"]
    assert sorted(await work(connection, 3, b"")) == ["0", "1", "2"]  # nobody answers: ack_wait
    assert sorted(await work(connection, 6)) == EVERYTHING
    await holds(connection, "W", 0)


@pytest.mark.parametrize(
    ("reader", "retention", "moment"),
    some(itertools.product(COPIES, REMOVING, ["before", "after"]), 3, 1),
)
async def test_a_dead_job_stays_in_its_stream_beside_a_copy(
    connection: Client, retention: str, reader: str, moment: str
) -> None:
    await create(connection, "W", subjects=["j.>"], retention=retention)
    await employ(connection, max_deliver=1, ack_wait=SECOND // 5)
    if moment == "before":
        copied = await read(connection, reader)
        await publish(connection)
        await holds(connection, "T", copied)
        assert await work(connection, 1, b"") == ["0"]
        assert sorted(await work(connection, 5)) == EVERYTHING[1:]
    else:
        await publish(connection)
        assert await work(connection, 1, b"") == ["0"]
        await until(lambda: died(connection), "the job never died")
        await holds(connection, "T", await read(connection, reader))
        assert sorted(await work(connection, 5)) == EVERYTHING[1:]
    await holds(connection, "W", 1)
    # When the next one has left, the copy has said that it has all of them.
    await connection.request("j.a", b"next", timeout=5)
    assert await work(connection, 1) == ["next"]
    await holds(connection, "W", 1)
    assert (await state(connection, "W"))["first_seq"] == 1


@pytest.mark.parametrize("retention", REMOVING)
async def test_what_a_full_target_has_not_copied_stays_when_the_workers_are_done(
    connection: Client, retention: str
) -> None:
    await create(connection, "W", subjects=["j.>"], retention=retention)
    await employ(connection)
    await create(connection, "T", sources=[{"name": "W"}], max_msgs=2, discard="new")
    await publish(connection)
    await holds(connection, "T", 2)
    assert sorted(await work(connection, 6)) == EVERYTHING
    left = (await state(connection, "W"))["messages"]
    assert left >= 4  # of the two that are copied a server may know a little later
    await ask(
        connection,
        "STREAM.UPDATE.T",
        {"name": "T", "sources": [{"name": "W"}], "max_msgs": 100, "discard": "new"},
    )
    await holds(connection, "T", 6)
    found = [(await connection.jetstream().get_msg("T", sequence)).data for sequence in range(1, 7)]
    assert [each.decode() for each in found if each] == EVERYTHING
    await holds(connection, "W", 0)


async def test_what_no_worker_wants_leaves_a_work_queue_when_it_is_copied(
    connection: Client,
) -> None:
    await create(connection, "W", subjects=["j.>"], retention="workqueue")
    await employ(connection, filter_subject="j.b")
    await create(connection, "T", sources=[{"name": "W"}])
    await publish(connection)
    await holds(connection, "T", 6)
    await holds(connection, "W", 3)
    assert sorted(await work(connection, 3)) == ["1", "3", "5"]
    await holds(connection, "W", 0)


async def test_a_copy_that_is_removed_leaves_the_jobs_of_the_workers(connection: Client) -> None:
    await create(connection, "W", subjects=["j.>"], retention="workqueue")
    await employ(connection)
    await create(connection, "T", sources=[{"name": "W"}], max_msgs=2, discard="new")
    await publish(connection)
    await holds(connection, "T", 2)
    assert await work(connection, 3) == ["0", "1", "2"]
    await ask(connection, "STREAM.DELETE.T")
    assert sorted(await work(connection, 3)) == ["3", "4", "5"]


async def test_what_workers_have_acknowledged_leaves_with_the_last_copy(tmp_path: Path) -> None:
    """Ours alone: nats-server keeps it for good, where nobody will ever ask for it."""
    async with Broker(store_dir=tmp_path / "store") as broker:
        connection = await nats.connect(broker.client_url, allow_reconnect=False)
        await create(connection, "W", subjects=["j.>"], retention="workqueue")
        await employ(connection)
        await create(connection, "T", sources=[{"name": "W"}], max_msgs=2, discard="new")
        await create(connection, "U", sources=[{"name": "W"}], max_msgs=4, discard="new")
        await publish(connection)
        await holds(connection, "U", 4)
        assert len(await work(connection, 5)) == 5
        await holds(connection, "W", 4)
        await ask(connection, "STREAM.DELETE.T")
        await holds(connection, "W", 2)
        await ask(connection, "STREAM.DELETE.U")
        await holds(connection, "W", 1)
        assert await work(connection, 1) == ["5"]
        await holds(connection, "W", 0)
        await connection.close()


@pytest.fixture(params=[pytest.param("nats-server", marks=pytest.mark.peer), "headrace"])
async def own(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[peers.ServerProcess]:
    server = peers.start_either(request.param, tmp_path, durable=True)
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("reader", "end"), some(itertools.product(COPIES, ["stopped", "killed"]), 3, 1)
)
async def test_a_restart_changes_nothing_for_worker_and_copy(
    own: peers.ServerProcess, reader: str, end: str
) -> None:
    connection = await nats.connect(own.url, allow_reconnect=False)
    await create(connection, "W", subjects=["j.>"], retention="workqueue")
    await employ(connection, max_deliver=1, ack_wait=SECOND // 5)
    copied = await read(connection, reader)
    await publish(connection)
    await holds(connection, "T", copied)
    assert await work(connection, 1, b"") == ["0"]
    await until(lambda: died(connection), "the job never died")
    assert await work(connection, 2) == ["1", "2"]
    await holds(connection, "W", 4)
    await connection.close()
    own.stop() if end == "stopped" else own.kill()
    own.start_again()
    connection = await nats.connect(own.url, allow_reconnect=False)
    await has_made(connection, "W", 6)
    assert (await state(connection, "W"))["messages"] == 4
    assert Counter(await work(connection, 3)) == Counter(["3", "4", "5"])
    await holds(connection, "W", 1)  # the dead one
    assert (await state(connection, "T"))["messages"] == copied
    await connection.close()
