"""How long keys of an elastic group are silent when its members change, over links of some length.

Messages of many keys come at a steady rate while members are added, dropped and told to step down, the group
is changed, and one instance is killed. Members and the one who changes them are behind a `Link`, whoever
publishes is beside the server. A key's silence is how long one of its messages waited from its publication
to its handler: the longest wait of all keys, from the event on until nothing waits any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, get_args

import report
from contenders import Contender, running
from headrace import Connection, ConsumerConfig, connect
from headrace.errors import HeadraceError
from headrace.groups import GroupMessage, Layout, PartitioningFilter, elastic
from headrace.testing import Link
from waiting import elapse

LINKS_MS = (0.0, 2.0, 10.0, 40.0, 150.0)
RATE = 500
KEYS = 48
PARTITIONS = 12
ACK_WAIT_S = 5.0
HANDLER_S = 0.0005
"""What a handler asks the loop for, which makes a whole millisecond or two of it."""
RATE_OF_ONE = 500
"""Messages/s that two members can do one by one; with more, each has ``HANDLERS`` at once."""
HANDLERS = 8
PUBLISH_EVERY_S = 0.002
LOOK_EVERY_S = 0.05
CALM_S = 1.5
"""Between two events, and how long after one is looked for waits."""
GIVEN_UP_S = 60.0

Event = Literal["add", "drop", "step down", "change", "crash"]
EVENTS: tuple[Event, ...] = get_args(Event)
HEAD = ["round trip", "server", "layout", "before", *EVENTS]
WIDTHS = [10, 24, 14, 13, 13, 13, 13, 13, 13]


class Scene:
    """A group at work behind a link."""

    def __init__(self, stack: contextlib.AsyncExitStack, url: str, far: Link, rate: int) -> None:
        self._stack = stack
        self._url = url
        self._far = far.url
        self._round_trip_s = far.round_trip_s
        self._rate = rate
        self._partitions = PARTITIONS
        self.published: list[float] = []
        self.handled: list[float] = []
        self.errors: list[Exception] = []

    async def begin(self, layout: Layout) -> None:
        near = await self._stack.enter_async_context(connect(self._url))
        self._js = near.jetstream()
        await self._js.create_stream(name="S", subjects=["s.*"])
        self._admin = (await self._link(self._far)).jetstream()
        await elastic.create(
            self._admin,
            "S",
            "g",
            self._partitions,
            partitioning_filters=[PartitioningFilter("s.*", (1,))],
            members=["a", "b"],
            layout=layout,
        )
        for member in ("b", "c"):
            for _ in range(2):
                await self._join(member, self._far)
        self._rivals = {link: await self._join("a", link.url) for link in self._two_links()}
        publishing = asyncio.create_task(self._publish())

        async def end() -> None:
            publishing.cancel()
            await asyncio.wait([publishing])

        self._stack.push_async_callback(end)

    def _two_links(self) -> list[Link]:
        """One for each instance of a member, as long as the common one, so that it can be cut off."""
        return [self._stack.enter_context(Link(self._url, self._round_trip_s)) for _ in range(2)]

    async def _link(self, url: str) -> Connection:
        return await self._stack.enter_async_context(connect(url))

    async def _join(self, member: str, url: str) -> Any:
        stack = contextlib.AsyncExitStack()

        async def leave() -> None:
            with contextlib.suppress(HeadraceError):  # of who was cut off
                await stack.aclose()

        self._stack.push_async_callback(leave)
        connection = await stack.enter_async_context(connect(url))
        config = ConsumerConfig(ack_wait=ACK_WAIT_S)
        membership = elastic.join(
            connection.jetstream(),
            "S",
            "g",
            member,
            self._handle,
            config,
            on_error=self.errors.append,
            concurrency=1 if self._rate <= RATE_OF_ONE else HANDLERS,
        )
        return await stack.enter_async_context(membership)

    async def _handle(self, message: GroupMessage) -> None:
        await elapse(HANDLER_S, "a handler works for so long")
        number = int(message.payload)
        if not self.handled[number]:
            self.handled[number] = time.monotonic()
        message.ack()

    async def _publish(self) -> None:
        began = time.monotonic()
        async with self._js.publisher() as publisher:
            while True:
                due = int((time.monotonic() - began) * self._rate)
                for number in range(len(self.published), due):
                    self.published.append(time.monotonic())
                    self.handled.append(0.0)
                    await publisher.send(f"s.k{number % KEYS}", b"%d" % number)
                await elapse(PUBLISH_EVERY_S, "messages come at a steady rate")

    async def longest(self, event: Event | None) -> float:
        """The longest wait from ``event`` on."""
        first = len(self.published)
        began = time.monotonic()
        if event is not None:
            await self.happen(event)
        calm = time.monotonic()
        while (now := time.monotonic()) - calm < CALM_S:
            waiting = [
                at
                for at, done in zip(self.published[first:], self.handled[first:], strict=True)
                if not done
            ]
            if waiting and now - waiting[0] > 0.25 + 2 * HANDLER_S:
                calm = now
            if now - began > GIVEN_UP_S:
                return now - waiting[0]
            await elapse(LOOK_EVERY_S, "messages are handled meanwhile")
        waits = zip(self.published[first:], self.handled[first:], strict=True)
        return max((done - at for at, done in waits if done), default=0.0)

    async def happen(self, event: Event) -> None:
        js = self._admin
        if event == "add":
            await elastic.add_members(js, "S", "g", ["c"])
        elif event == "drop":
            await elastic.drop_members(js, "S", "g", ["c"])
        elif event == "step down":
            await elastic.step_down(js, "S", "g", "a")
        elif event == "change":
            self._partitions = PARTITIONS + 4 if self._partitions == PARTITIONS else PARTITIONS
            await elastic.change(js, "S", "g", max_members=self._partitions)
        else:
            next(link for link, each in self._rivals.items() if each.is_active).cut()


@contextlib.asynccontextmanager
async def at_work(url: str, far: Link, rate: int, layout: Layout) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as stack:
        scene = Scene(stack, url, far, rate)
        await scene.begin(layout)
        for _ in range(5):  # the first looks see the members begin
            if await scene.longest(None) < 0.25 + 2 * far.round_trip_s:
                break
        yield scene


async def _row(
    url: str, far: Link, rate: int, layout: Layout, rounds: int
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"before": []}
    async with at_work(url, far, rate, layout) as scene:
        for _ in range(rounds):
            found["before"].append(await scene.longest(None))
            for event in EVENTS:
                if event != "crash":
                    found.setdefault(event, []).append(await scene.longest(event))
        found["crash"] = [await scene.longest("crash")]
        for each in scene.errors:
            print(f"  told: {each!r}", file=sys.stderr)
    return found


def _cell(waits: Sequence[float]) -> str:
    if not waits:
        return ""
    worst = f" {max(waits):.2f}" if len(waits) > 1 else ""
    return f"{statistics.median(waits):.2f}{worst}"


def run(
    rounds: int,
    servers: Sequence[Contender],
    links_ms: Sequence[float],
    rate: int,
    only: Sequence[str],
) -> None:
    """``only``: parts of names of layouts; ``links_ms``: round trips."""
    layouts = [each for each in get_args(Layout) if not only or any(o in each for o in only)]
    what = f"{rate} messages/s over {KEYS} keys"
    title = f"Takeovers, {what}: the longest wait of a message (s, median and worst of {rounds})"
    report.head(title, HEAD, WIDTHS)
    figures: dict[str, Any] = {}
    for server in servers:
        for layout in layouts:
            for round_trip_ms in links_ms or LINKS_MS:
                with running(server) as process, Link(process.url, round_trip_ms / 1000) as link:
                    found = asyncio.run(_row(process.url, link, rate, layout, rounds))
                cells = [_cell(found.get(each, [])) for each in HEAD[3:]]
                report.row([f"{round_trip_ms:g} ms", server.name, layout, *cells], WIDTHS)
                figures[f"{round_trip_ms:g} ms, {server.name}, {layout}"] = found
    report.write("takeovers", figures)
