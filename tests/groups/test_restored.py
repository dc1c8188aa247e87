"""An elastic group that is put back from a backup goes on: nothing is lost, and nothing is handled again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from headrace.client import JetStream, connect
from headrace.groups import ElasticGroup, GroupMessage, Membership, PartitioningFilter, elastic
from portions import play_one_way
from waiting import until

BEFORE, LEFT, AFTER = 100, 9, 20
BY_KEY = [PartitioningFilter("s.*", (1,))]
NAMES = ("S", "S-g", "KV_elastic-consumer-groups")


SERVERS = ["headrace", pytest.param("nats-server", marks=pytest.mark.peer)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Half of them are played on either server, and ``make test-all`` plays all on both."""
    play_one_way(metafunc, "server", SERVERS)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path / "server", durable=True)


class Handled:
    """What handlers got."""

    def __init__(self) -> None:
        self.numbers: Counter[int] = Counter()
        self.errors: list[Exception] = []

    async def __call__(self, message: GroupMessage) -> None:
        self.numbers[int(message.payload)] += 1
        await message.ack_sync()

    def at_work(self, js: JetStream) -> Membership[ElasticGroup]:
        return elastic.join(js, "S", "g", "a", self, on_error=self.errors.append)


async def make(js: JetStream) -> None:
    await js.create_stream(name="S", subjects=["s.*"])
    await elastic.create(js, "S", "g", 4, partitioning_filters=BY_KEY, members=["a"])


async def publish(js: JetStream, numbers: range) -> None:
    for number in numbers:
        await js.publish(f"s.{number % 7}", b"%d" % number)


async def waiting(js: JetStream) -> int:
    return (await (await js.stream("S-g")).info()).state.messages


async def handle_most(js: JetStream) -> None:
    """All but the last ones, which lie in the work queue."""
    await make(js)
    handled = Handled()
    async with handled.at_work(js):
        await publish(js, range(BEFORE - LEFT))
        await until(lambda: len(handled.numbers) == BEFORE - LEFT, within=30)
    await publish(js, range(BEFORE - LEFT, BEFORE))

    async def is_so() -> bool:
        return await waiting(js) == LEFT

    await until(is_so, within=30)


async def test_all_of_it_goes_on_where_it_was(server: peers.ServerProcess, tmp_path: Path) -> None:
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await handle_most(js)
        for name in NAMES:
            await (await js.stream(name)).backup(tmp_path / name)
        for name in NAMES:
            await js.delete_stream(name)
        for name in NAMES:
            await js.restore_stream(tmp_path / name)
        config = (await (await js.stream("S-g")).info()).config
        assert config.sources[0].opt_start_seq == BEFORE + 1
        handled = Handled()
        async with handled.at_work(js):
            await publish(js, range(BEFORE, BEFORE + AFTER))
            await until(lambda: len(handled.numbers) >= LEFT + AFTER, within=60)
        assert sorted(handled.numbers.elements()) == list(range(BEFORE - LEFT, BEFORE + AFTER))


async def test_a_backup_beside_another_stream_of_that_name_copies_it_from_its_beginning(
    server: peers.ServerProcess, tmp_path: Path
) -> None:
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await handle_most(js)
        await (await js.stream("S-g")).backup(tmp_path / "S-g")
        known = json.loads((tmp_path / "S-g" / "backup.json").read_bytes())["copied"]
        assert known[0][:2] == ["S", BEFORE]
        for name in ("S", "S-g"):
            await js.delete_stream(name)
        await js.create_stream(name="S", subjects=["s.*"])
        await publish(js, range(1000, 1000 + BEFORE))
        await js.restore_stream(tmp_path / "S-g")

        async def is_so() -> bool:
            return await waiting(js) == LEFT + BEFORE

        await until(is_so, within=60)


@pytest.mark.parametrize("server", SERVERS, indirect=True)
@pytest.mark.parametrize("at_work", [True, False], ids=["at work", "joining later"])
async def test_a_group_goes_on_in_a_stream_that_alone_was_put_back(
    server: peers.ServerProcess, tmp_path: Path, at_work: bool
) -> None:
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await make(js)
        handled = Handled()

        async def put_back() -> None:
            await (await js.stream("S")).backup(tmp_path / "S")
            await js.delete_stream("S")
            await js.restore_stream(tmp_path / "S")

        async with handled.at_work(js):
            await publish(js, range(BEFORE))
            await until(lambda: len(handled.numbers) == BEFORE, within=30)
            if at_work:
                await put_back()
                await publish(js, range(BEFORE, BEFORE + AFTER))
                await until(lambda: len(handled.numbers) == BEFORE + AFTER, within=90)
        if not at_work:
            await put_back()
            await publish(js, range(BEFORE, BEFORE + AFTER))
            async with handled.at_work(js):
                await until(lambda: len(handled.numbers) == BEFORE + AFTER, within=90)
        assert set(handled.numbers.values()) == {1}
        info = await (await js.stream("S-g")).info()
        is_copied_again = info.state.last_seq > BEFORE + AFTER  # as nats-server does
        assert is_copied_again == (server.name == "nats-server")
        assert [str(each) for each in handled.errors if "was restored" not in str(each)] == []
        assert bool(handled.errors) == is_copied_again


async def test_members_at_work_handle_all_of_another_stream_of_that_name(
    server: peers.ServerProcess,
) -> None:
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await make(js)
        handled = Handled()
        async with handled.at_work(js):
            await publish(js, range(BEFORE))
            await until(lambda: len(handled.numbers) == BEFORE, within=30)
            await js.delete_stream("S")
            await js.create_stream(name="S", subjects=["s.*"])
            await publish(js, range(1000, 1000 + BEFORE + AFTER))
            await until(lambda: len(handled.numbers) == 2 * BEFORE + AFTER, within=90)
        assert set(handled.numbers.values()) == {1}
