"""A group with its stream, and what the handlers of its members saw. For the tests of members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from headrace.api.consumers import ConsumerConfig
from headrace.client import JetStream
from headrace.groups import ElasticGroup, Layout, MemberMapping, PartitioningFilter, elastic
from headrace.groups.member import Membership
from headrace.groups.message import GroupMessage
from waiting import until

__all__ = ["CONFIG", "GROUP", "PARTITIONS", "QUICK", "STREAM", "Seen", "World"]

STREAM: Final = "ORDERS"
GROUP: Final = "billing"
PARTITIONS: Final = 4
CONFIG: Final = ConsumerConfig(ack_wait=5.0, max_ack_pending=1)
QUICK: Final = ConsumerConfig(ack_wait=1.0, max_ack_pending=1)  # for what is lost and comes again


class Seen:
    """What handlers got, in order: member, key, number, partition, generation."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, int, int, int]] = []

    def note(self, member: str, message: GroupMessage) -> None:
        key = message.subject.partition(".")[2]
        number = int(message.payload)
        self.rows.append((member, key, number, message.partition, message.generation))

    def handler(self, member: str) -> Callable[[GroupMessage], Awaitable[None]]:
        async def handle(message: GroupMessage) -> None:
            self.note(member, message)
            await message.ack_sync()

        return handle

    def numbers(self, key: str | None = None) -> list[int]:
        return [row[2] for row in self.rows if key in (None, row[1])]

    def members(self, since: int = 0) -> set[str]:
        return {row[0] for row in self.rows[since:]}

    def forget_repeated(self) -> list[int]:
        """Keep the first handling of each message; the numbers of those that were handled again."""
        first: dict[int, int] = {}
        for place, number in enumerate(self.numbers()):
            first.setdefault(number, place)
        again = [n for place, n in enumerate(self.numbers()) if first[n] != place]
        self.rows[:] = [self.rows[place] for place in first.values()]
        return again

    def check_once_and_in_order(self, total: int) -> None:
        assert sorted(self.numbers()) == list(range(total))
        for key in {row[1] for row in self.rows}:
            assert self.numbers(key) == sorted(self.numbers(key)), key


class World:
    """A group on a server, and the messages of its stream."""

    def __init__(self, js: JetStream, storage: Literal["file", "memory"] = "memory") -> None:
        self.js = js
        self.url = js.connection.server
        self._storage = storage
        self.seen = Seen()
        self.published = 0
        self.errors: list[Exception] = []

    async def create(self, layout: Layout = "interoperable", members: tuple[str, ...] = ()) -> None:
        await self.js.create_stream(name=STREAM, subjects=[f"{STREAM}.*"], storage=self._storage)
        await elastic.create(
            self.js,
            STREAM,
            GROUP,
            PARTITIONS,
            partitioning_filters=[PartitioningFilter(f"{STREAM}.*", (1,))],
            members=members,
            layout=layout,
        )

    def mapped(self, member: str) -> list[MemberMapping]:
        """All partitions for one member."""
        return [MemberMapping(member, tuple(range(PARTITIONS)))]

    async def publish(self, count: int, keys: int = 8) -> None:
        async with self.js.publisher() as publisher:
            for _ in range(count):
                number = self.published
                self.published += 1
                await publisher.send(f"{STREAM}.k{number % keys}", b"%d" % number)
            await publisher.flush()

    def iterate(self, member: str, **options: Any) -> Membership[ElasticGroup]:
        """A membership without a handler."""
        options.setdefault("config", CONFIG)
        return elastic.join(self.js, STREAM, GROUP, member, on_error=self.errors.append, **options)

    def join(self, member: str, handler: Any = None, **options: Any) -> Membership[ElasticGroup]:
        options.setdefault("config", CONFIG)
        options.setdefault("on_error", self.errors.append)
        js = options.pop("js", self.js)
        handler = handler or self.seen.handler(member)
        return elastic.join(js, STREAM, GROUP, member, handler, **options)

    async def until_seen(self, total: int | None = None) -> None:
        wanted = self.published if total is None else total
        await until(
            lambda: len(self.seen.rows) >= wanted,
            f"not all of {wanted} messages were handled",
        )
