"""What people change, how often each, and how: every deed sets values, so it can be done again when the
server went away in the middle of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from changes.places import CHANNEL
from changes.ships import Ships
from changes.traffic import QUEUE_NAMES, Work
from headrace.cli import main
from headrace.client import Stream
from headrace.errors import HeadraceError
from headrace.groups import ChangeProgress, PartitioningFilter, elastic

DEED_S = 180.0
"""So long a change may take; a group that is changed waits until its work queue is drained."""

NAMES = ("ann", "bob", "cec", "dan", "eve")
BY_CUSTOMER = [PartitioningFilter("orders.*.*", (1,))]
BY_ORDER = [PartitioningFilter("orders.*.*", (1, 2))]
READERS = {"audit": ("ORDERS",), "watch": ("EVENTS",), "work": QUEUE_NAMES}
LANES = {"audit": "audit", "watch": "events", "work": "queue"}

Deed = Callable[[], Awaitable[object]]
"""Sets what was drawn before; called again if the server went away meanwhile."""


@dataclass
class Deeds:
    """Draws a change and carries it out."""

    work: Work
    hook: str
    """The address that jobs are pushed to."""

    ships: Ships
    queue: str = "TASKS"
    done: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    only: tuple[str, ...] = ()
    """The kinds that are drawn; none: all, by their weights."""

    def weighted(self) -> dict[Callable[[], Deed], int]:
        """How often each kind of change is made, as people do it."""
        return {
            self.edit_limits: 20,
            self.edit_queue: 8,
            self.edit_events: 5,
            self.edit_subjects: 4,
            self.edit_consumer: 15,
            self.pause: 5,
            self.hire_or_dismiss: 12,
            self.crash: 5,
            self.change_group: 7,
            self.limit_group: 6,
            self.edit_bucket: 8,
            self.push_or_pull: 6,
            self.rotate: 4,
            self.retry_less: 4,
            self.reload_jobs: 3,
            self.restart_jobs: 3,
            self.rename: 3,
            self.move_jobs: 3,
            self.move_database: 2,
            self.ships.step_down: 4,
            self.ships.roll: 5,
            self.ships.other_members: 3,
            self.ships.repartition: 3,
            self.reload: 3,
            self.restart: 4,
        }

    async def one(self) -> str:
        """Make a change, drawn by weight; its name."""
        work, table = self.work, self.weighted()
        if self.only:
            table = {kind: 1 for kind in table if kind.__name__ in self.only}
        (kind,) = work.random.choices([*table], [*table.values()])
        name = kind.__name__
        deed = kind()
        breaks = work.random.random() < 0.06 and name not in {"restart", "reload"}
        breaking: asyncio.Task[None] | None = None
        if breaks:
            breaking = asyncio.create_task(self._break(work.random.uniform(0.0, 0.3)))
        try:
            await self._until_done(name, deed)
        finally:
            if breaking is not None:
                await breaking
        self.done[name] = self.done.get(name, 0) + 1
        return name

    async def _break(self, after_s: float) -> None:
        await self.work.rest(after_s)
        await self._restart()

    async def _restart(self) -> None:
        work = self.work
        kills = work.server.kind == "headrace" and work.random.random() < 0.4
        work.say(f"the server is {'killed' if kills else 'restarted'}")
        work.tell(f"    {work.lanes['events'].said} at {time.monotonic():.2f} s")
        await work.server.restart(kill=kills)
        self.done["broker restarts"] = self.done.get("broker restarts", 0) + 1

    async def _until_done(self, name: str, deed: Deed) -> None:
        """Once; again only where the server was away meanwhile."""
        work = self.work
        while True:
            before = work.server.restarts
            try:
                async with asyncio.timeout(DEED_S):
                    await deed()
                return
            except HeadraceError as error:
                if not work.server.is_down and work.server.restarts == before:
                    work.wrong.append(f"refused: {name}: {type(error).__name__}: {error}")
                    return
                self.repeated += 1
                work.say(f"{name}: {error}")
                await work.rest(0.2)
            except TimeoutError:
                work.wrong.append(f"hangs: {name} is not done after {DEED_S:.0f} s")
                return

    # Streams

    def edit_limits(self) -> Deed:
        """Limits of LOG; what has to be left is compared."""
        random = self.work.random
        limits: dict[str, Any] = {
            "max_msgs": random.choice([-1, 20, 50, 100, 200]),
            "per_subject": random.choice([-1, -1, 3, 10, 30]),
            "discard": random.choice(["old", "new"]),
        }
        more: dict[str, Any] = {
            "description": f"{random.random()}",
            "max_age": random.choice([0.0, 3600.0]),
            "duplicate_window": random.choice([120.0, 300.0]),
        }

        async def deed() -> None:
            async with self.work.log:
                stream = await self.work.js.stream("LOG")
                await stream.update(
                    max_msgs=limits["max_msgs"],
                    max_msgs_per_subject=limits["per_subject"],
                    discard=limits["discard"],
                    **more,
                )
                self.work.kept.change(**limits)
                await self.work.check_kept()

        return deed

    def edit_queue(self) -> Deed:
        """Limits of the work queue, below what it holds, too: nothing of it may go."""
        random = self.work.random
        most, nbytes = random.choice([-1, 5, 20, 100]), random.choice([-1, -1, 500, 5000])

        async def deed() -> None:
            stream = await self._stream()
            await stream.update(max_msgs=most, max_bytes=nbytes, metadata={"most": str(most)})

        return deed

    def edit_events(self) -> Deed:
        """Kept by limits, or for as long as somebody needs it."""
        kinds: list[Literal["limits", "interest"]] = ["limits", "interest"]
        kind = self.work.random.choice(kinds)

        async def deed() -> None:
            await (await self.work.js.stream("EVENTS")).update(retention=kind)

        return deed

    def edit_subjects(self) -> Deed:
        """ORDERS listens on more, or on less again; others go on."""
        more = self.work.random.sample(
            ["extra.*", "extra2.>", "more"], self.work.random.randrange(4)
        )

        async def deed() -> None:
            stream = await self.work.js.stream("ORDERS")
            await stream.update(subjects=("orders.*.*", *more), compression="none")

        return deed

    def rename(self) -> Deed:
        """The work queue gets its other name."""
        old = self.queue
        new = next(name for name in QUEUE_NAMES if name != old)
        url = self.work.server.process.url

        async def deed() -> None:
            self.work.say(f"stream {old} is being renamed to {new}", "queue")
            command = ["stream", "rename", old, new, "--force", "--wait", "5", "--server", url]
            status = await asyncio.to_thread(main, command)
            if status:
                raise HeadraceError(f"stream rename {old} {new} ended with {status}")
            self.queue = new
            self.work.say(f"stream {old} is {new} now", "queue")

        return deed

    async def _stream(self) -> Stream:
        return await self.work.js.stream(self.queue)

    # Consumers

    def edit_consumer(self) -> Deed:
        """How long and how much a consumer waits for acknowledgements."""
        random = self.work.random
        name = random.choice([*READERS])
        values: dict[str, Any] = {
            "ack_wait": random.choice(self.work.ack_waits),
            "max_ack_pending": random.choice([1, 5, 50, 1000]),
            "max_batch": random.choice([0, 5, 100]),
            "description": f"{random.random()}",
            "sample_freq": random.choice(["", "10%"]),
        }

        async def deed() -> None:
            stream = await self.work.js.stream(self.queue if name == "work" else READERS[name][0])
            found = (await (await stream.consumer(name)).info()).config
            await stream.update_consumer(msgspec.structs.replace(found, **values))

        return deed

    def pause(self) -> Deed:
        """A consumer pauses for some seconds."""
        random = self.work.random
        name, seconds = random.choice([*READERS]), random.uniform(1, 12)

        async def deed() -> None:
            stream = await self.work.js.stream(self.queue if name == "work" else READERS[name][0])
            consumer = await stream.consumer(name)
            await consumer.pause(seconds)
            lane = self.work.lanes[LANES[name]]
            lane.explain_until(time.monotonic() + seconds)
            await self.work.rest(seconds)
            await consumer.resume()
            self.work.say(f"consumer {name} goes on", LANES[name])

        return deed

    # The group

    def hire_or_dismiss(self) -> Deed:
        """A member is added and begins, or ends and is dropped."""
        work = self.work
        present = sorted(work.members)
        absent = [name for name in NAMES if name not in present]
        hires = len(present) < 2 or (absent and work.random.random() < 0.5)
        name = work.random.choice(absent if hires else present)

        async def hire() -> None:
            await elastic.add_members(work.js, "ORDERS", "billing", [name])
            if name not in work.members:
                await work.join(name)

        async def dismiss() -> None:
            await elastic.drop_members(work.js, "ORDERS", "billing", [name])
            await work.leave(name)

        return hire if hires else dismiss

    def crash(self) -> Deed:
        """A member leaves as it does when its process is restarted, and joins again."""
        work = self.work
        name = work.random.choice(sorted(work.members))

        async def deed() -> None:
            await work.leave(name)
            await work.join(name)

        return deed

    def change_group(self) -> Deed:
        """Other partitions, another key."""
        work = self.work
        partitions = work.random.randint(1, 7)
        filters = work.random.choice([BY_CUSTOMER, BY_ORDER])

        def tell(progress: ChangeProgress) -> None:
            work.say(f"group billing: {progress}", "group")
            work.tell(
                f"    {partitions} partitions by {filters[0].partitioning_wildcards}: {progress}"
            )

        async def deed() -> None:
            if (await elastic.get(work.js, "ORDERS", "billing")).change is not None:
                work.tell("    a change that is under way goes on")
                await elastic.change(work.js, "ORDERS", "billing", on_progress=tell)
            await elastic.change(
                work.js,
                "ORDERS",
                "billing",
                max_members=partitions,
                partitioning_filters=filters,
                on_progress=tell,
            )

        return deed

    def limit_group(self) -> Deed:
        """Other limits of the group's work queue, below what it holds, too."""
        most, nbytes = self.work.random.choice([(0, 0), (3, 0), (50, 0), (0, 2000), (500, 1 << 20)])

        async def deed() -> None:
            if (await elastic.get(self.work.js, "ORDERS", "billing")).change is not None:
                return  # refused, with the command that completes it
            await elastic.update(
                self.work.js,
                "ORDERS",
                "billing",
                max_buffered_messages=most,
                max_buffered_bytes=nbytes,
            )

        return deed

    # Bucket and jobs

    def edit_bucket(self) -> Deed:
        """History, lifetime, size."""
        random = self.work.random
        values: dict[str, Any] = random.choice(
            [
                {"history": random.choice([1, 3, 5, 20])},
                {"ttl": random.choice([0, 3600.0, 86_400.0])},
                {"max_bytes": random.choice([-1, 300, 3000, 1 << 20])},
                {"max_value_size": random.choice([-1, 100])},
                {"description": f"{random.random()}"},
            ]
        )

        async def deed() -> None:
            async with self.work.log:
                await self.work.js.update_key_value("SETTINGS", **values)
                await self.work.check_kept()

        return deed

    def push_or_pull(self) -> Deed:
        """The consumer of jobs is pushed to, or pulled from."""
        kind = self.work.random.choice(["push", "pull"])

        async def deed() -> None:
            async with self.work.service.client() as client:
                await client.put_consumer(
                    CHANNEL, self.work.service.consumer, kind=kind, callback_url=self.hook
                )
            self.work.say(f"the consumer of jobs is {kind} now", "jobs")

        return deed

    def rotate(self) -> Deed:
        """Another token; the one before is accepted meanwhile."""
        token = f"kt{self.work.random.random()}"

        async def deed() -> None:
            service = self.work.service
            async with service.client() as client:
                await client.rotate_token(CHANNEL, self.work.service.consumer, token=token)
            service.token = token

        return deed

    def retry_less(self) -> Deed:
        """More or fewer attempts, a pause of the consumer."""
        most = self.work.random.choice([20, 50])

        async def deed() -> None:
            async with self.work.service.client() as client:
                await client.patch_consumer(
                    CHANNEL, self.work.service.consumer, max_retries=most, paused=True
                )
                self.work.say("the consumer of jobs is paused", "jobs")
                await self.work.rest(1.0)
                await client.patch_consumer(CHANNEL, self.work.service.consumer, paused=False)
                self.work.say("the consumer of jobs goes on", "jobs")

        return deed

    def reload_jobs(self) -> Deed:
        """Another configuration file and a signal."""
        most = self.work.random.choice([20, 50, 99])

        async def deed() -> None:
            self.work.service.limits["max_retries"] = most
            self.work.service.reload()

        return deed

    def restart_jobs(self) -> Deed:
        """The job service is restarted, politely or not."""
        kills = self.work.random.random() < 0.4

        async def deed() -> None:
            self.work.say("the job service is restarted", "jobs")
            await self.work.service.restart(kill=kills)
            self.work.say("the job service is back", "jobs")

        return deed

    def move_jobs(self) -> Deed:
        """Another consumer gets the jobs of the one there is, which is deleted."""
        service = self.work.service
        old = service.consumer
        new = f"k{self.work.random.randrange(10**9)}"

        async def deed() -> None:
            async with service.client() as client:
                kind = (await client.consumer(CHANNEL, old))["type"]
                # It pauses first: else the other would get what is handled here, too.
                await client.patch_consumer(CHANNEL, old, paused=True)
                await client.put_consumer(CHANNEL, new, kind="pull", token=service.token)
                if kind != "pull":
                    await client.put_consumer(CHANNEL, new, kind=kind, callback_url=self.hook)
                while (await service.counts())["INFLIGHT"]:
                    self.work.say(f"consumer {old} of jobs is paused until none runs", "jobs")
                    await self.work.rest(0.2)
            command = ["jobs", "delete-consumer", CHANNEL, old, "--move-to", new, "--force"]
            self.work.say(f"consumer {old} of jobs is paused until they are moved", "jobs")
            if status := await asyncio.to_thread(main, [*command, "--url", service.url]):
                raise HeadraceError(f"jobs delete-consumer {old} ended with {status}")
            service.consumer = new
            self.work.say(f"the jobs of {old} are moved to {new}", "jobs")

        return deed

    def move_database(self) -> Deed:
        """The jobs go to another database, of the other kind where there is one."""
        work = self.work

        async def deed() -> None:
            service, new = work.service, await work.service.next_database()
            file = service.folder / f"jobs{service.databases}.jsonl"
            work.say("the jobs are being exported", "jobs")
            for verb, database in (("export", service.database), ("import", new)):
                command = ["jobs", verb, str(file), "--database", database]
                if status := await asyncio.to_thread(main, command):
                    raise HeadraceError(f"jobs {verb} ended with {status}")
                if verb == "export":
                    await service.end()
            service.database = new
            service.write()
            service.life += 1
            await service.run()
            work.say("the jobs are in another database", "jobs")

        return deed

    # The server

    def reload(self) -> Deed:
        """Another configuration file and a signal."""
        size = self.work.random.choice([1 << 20, 1 << 19, 1 << 18])

        async def deed() -> None:
            self.work.server.reload(size)

        return deed

    def restart(self) -> Deed:
        """The broker is restarted; ours is killed at times."""
        return self._restart
