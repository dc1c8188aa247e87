"""Takeovers of a query that takes the surplus of a worker: its runner is killed in the middle of a burst."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator

from headrace import sync
from runners import LEASE, SECONDS, WRITTEN, Run, Takeover, Written, folder_of, measured, urgent

BURST = 20_000
MARK = 500
ACK_WAIT_S = 60.0
"""Longer than a takeover takes. What the killed runner had not written down comes again after it."""
READ, WORKERS, GROUP = "BURSTS", "workers", "spill"

FILE = """
[pipeline]
name = "takeover"
checkpoint = "checkpoint"
fast_local_checkpoint = true
{lease}
[sources.surplus]
options = {{ stream = "{read}", consumer = "{workers}", minPending = "{mark}", servers = "{url}" }}

[views.lines]
sql = "SELECT sequence, CAST(data AS string) AS text FROM surplus"

[sinks.out]
from = "lines"
format = "jetstream"

[sinks.out.options]
servers = "{url}"
stream = "{written}"
subject = "written"
delivery = "exactlyOnce"
sinkId = "out"
"""


class Bursts:
    """The stream, its consumer and its worker, and who has handled what."""

    def __init__(self, connection: sync.Connection) -> None:
        self._js = connection.jetstream()
        stream = self._js.create_stream(name=READ, subjects=["taken"])
        self._consumer = stream.create_consumer(
            durable_name=WORKERS,
            ack_policy="explicit",
            ack_wait=ACK_WAIT_S,
            priority_policy="overflow",
            priority_groups=[GROUP],
        )
        subjects = ["written", f"_sink.{WRITTEN}.>"]
        self._js.create_stream(name=WRITTEN, subjects=subjects, allow_atomic=True)
        self._by_worker: list[int] = []
        self.published = 0

    def publish(self) -> None:
        first, self.published = self.published + 1, self.published + BURST
        with self._js.publisher() as publisher:
            for number in range(first, self.published + 1):
                publisher.send("taken", b"%d" % number)

    def waiting(self) -> int:
        return self._consumer.info().num_pending

    def finish(self) -> bool:
        """As the worker, handle what is there; whether nothing is left, with anybody."""
        for message in self._consumer.fetch(100, max_wait=0.5, group=GROUP):
            self._by_worker.append(int(message.payload))
            message.ack_sync()
        info = self._consumer.info()
        return info.num_pending == info.num_ack_pending == 0

    def wrong(self) -> tuple[int, int]:
        """How many messages nobody has handled, and how many were handled again."""
        stream = self._js.stream(WRITTEN)
        handled = Counter(self._by_worker)
        total = Written(self._js).messages()
        consumer = stream.ordered_consumer(filter_subjects=["written"])
        while total:
            for message in consumer.fetch(min(total, 10_000), max_wait=10.0):
                total -= 1
                handled[int(json.loads(message.payload)["text"])] += 1
        return self.published - len(handled), handled.total() - len(handled)


def takeovers(
    url: str, broker: int, rounds: int, *, kind: str, say: Callable[[str], None]
) -> Generator[Takeover, None, None]:
    """Kill the active runner in each burst. ``say`` is told at the end what is missing or came again."""
    with sync.connect(url) as connection, folder_of() as folder:
        bursts, written = Bursts(connection), Written(connection.jetstream())
        lease = LEASE.format(url=url, kind=kind, seconds=SECONDS)
        file = folder / "takeover.toml"
        file.write_text(
            FILE.format(
                url=url, lease=lease, read=READ, workers=WORKERS, mark=MARK, written=WRITTEN
            )
        )
        bursts.publish()
        runs = [Run(file, 0)]
        try:
            runs[0].until(lambda: runs[0].events("batch"))
            for each in range(1, rounds + 1):
                active, standby = runs[-1], Run(file, each)
                runs.append(standby)
                standby.until(lambda standby=standby: standby.is_ready)
                before = len(active.events("batch"))
                bursts.publish()
                active.until(
                    lambda active=active, before=before: len(active.events("batch")) > before
                )
                with urgent(broker, standby.process.pid, os.getpid()):
                    killed = time.time()
                    active.end(signal.SIGKILL)
                    standby.until(lambda standby=standby: standby.events("started"))
                    found = measured(standby, written, killed)
                yield found
                standby.until(lambda: bursts.waiting() < MARK)
            runs[-1].until(bursts.finish)
            missing, again = bursts.wrong()
            say(f"of {bursts.published} messages {missing} are missing, {again} were handled again")
            if missing or again:
                raise SystemExit("a takeover has lost messages, or has had them handled again")
        finally:
            for run in runs:
                run.end()
