"""Large removals, and questions about many subjects: what a neighbour waits meanwhile.

Another connection sends a PING as soon as the one before is answered. The longest wait while the operation is
under way is the figure; how long the operation takes itself is beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import contenders
import report
from contenders import Contender, running
from rawsocket import RawConnection
from waiting import elapse_here

WINDOW = 16_000
PAYLOAD_BYTES = 100
STREAM = contenders.STREAM
API = "$JS.API."
BAR_MS = 50.0
ANSWER_S = 120.0  # nats-server takes 13 s for one of these


@dataclass(frozen=True)
class Case:
    """``subject`` of each of ``messages``, the configuration, and what is asked then."""

    name: str
    messages: int
    subject: Callable[[int], str]
    config: dict[str, Any]
    verb: str
    body: dict[str, Any]
    consumer: str = ""


def halves(index: int) -> str:
    return f"bench.{index & 1}"


def keys(count: int) -> Callable[[int], str]:
    return lambda index: f"bench.k.{index % count}"


def updated(**changes: Any) -> dict[str, Any]:
    return {"name": STREAM, "subjects": ["bench.>"], "num_replicas": 1, **changes}


def made(name: str, count: int, policy: str) -> Case:
    config = {"durable_name": "d", "ack_policy": "explicit", "deliver_policy": policy}
    config["filter_subject"] = "bench.k.*"
    body = {"stream_name": STREAM, "config": config}
    verb = f"CONSUMER.CREATE.{STREAM}.d"
    return Case(name, 4 * count, keys(count), {}, verb, body)


def cases(million: int) -> list[Case]:
    purge, update = f"STREAM.PURGE.{STREAM}", f"STREAM.UPDATE.{STREAM}"
    return [
        Case("purge everything", million, halves, {}, purge, {}),
        Case("purge, keep 1,000", million, halves, {}, purge, {"keep": 1000}),
        Case("purge every second message", 2 * million, halves, {}, purge, {"filter": "bench.1"}),
        Case("max_msgs to a tenth", million, halves, {}, update, {"max_msgs": million // 10}),
        Case("max_bytes to a tenth", million, halves, {}, update, {"max_bytes": 15 * million}),
        Case("max_age, all too old", million, halves, {}, update, {"max_age": 10**8}),
        Case(
            "max_msgs_per_subject 200 to 10",
            million,
            keys(million // 200),
            {"max_msgs_per_subject": 200},
            update,
            {"max_msgs_per_subject": 10},
        ),
        Case(
            "the only consumer of an interest stream goes",
            million,
            halves,
            {"retention": "interest"},
            f"CONSUMER.DELETE.{STREAM}.d",
            {},
            consumer="d",
        ),
        Case("delete the stream", million, halves, {}, f"STREAM.DELETE.{STREAM}", {}),
        made("last_per_subject, 10,000 keys", million // 100, "last_per_subject"),
        made("last_per_subject, 100,000 keys", million // 10, "last_per_subject"),
        made("last of a filter, 100,000 keys", million // 10, "last"),
        made("all of a filter, 100,000 keys", million // 10, "all"),
        Case(
            "100,000 subjects listed",
            million // 5,
            keys(million // 10),
            {},
            f"STREAM.INFO.{STREAM}",
            {"subjects_filter": ">"},
        ),
    ]


class Neighbour:
    """Pings in a thread of its own and keeps the longest wait since ``begin``."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = RawConnection(host, port)
        self._stopping = threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            started = time.perf_counter()
            self._connection.ping()
            self.longest = max(self.longest, time.perf_counter() - started)


def measure(contender: Contender, case: Case, storage: str) -> tuple[float, float]:
    """The neighbour's longest wait and how long the operation took, in milliseconds."""
    with running(contender) as server, RawConnection(server.host, server.port) as connection:
        config = updated(storage=storage, **case.config)
        connection.request(f"{API}STREAM.CREATE.{STREAM}", config)
        if case.consumer:
            consumer = {"durable_name": case.consumer, "ack_policy": "explicit"}
            body = {"stream_name": STREAM, "config": consumer}
            connection.request(f"{API}CONSUMER.CREATE.{STREAM}.{case.consumer}", body)
        connection.publish_acked(case.messages, WINDOW, PAYLOAD_BYTES, case.subject)
        body = case.body
        if case.verb.startswith("STREAM.UPDATE"):
            body = {**config, **case.body}
            if "max_age" in body:
                body["duplicate_window"] = body["max_age"]
        neighbour = Neighbour(server.host, server.port)
        try:
            elapse_here(0.3, "what the publishing has left to do")
            neighbour.longest = 0.0
            started = time.perf_counter()
            connection.socket.settimeout(ANSWER_S)
            connection.request(API + case.verb, body or None)
            took = time.perf_counter() - started
            elapse_here(0.5, "what the operation has left to do")
            return 1000 * neighbour.longest, 1000 * took
        finally:
            neighbour.stop()


STORAGES = ("file", "memory")


def run(
    servers: list[Contender],
    million: int = 1_000_000,
    only: Sequence[str] = (),
    storages: Sequence[str] = STORAGES,
) -> None:
    rows, figures = [], {}
    for storage in storages:
        for case in cases(million):
            if only and not any(part in case.name for part in only):
                continue
            cells = []
            for contender in servers:
                wait, took = measure(contender, case, storage)
                figures[f"{contender.name} / {storage} / {case.name}"] = {
                    "wait_ms": wait,
                    "took_ms": took,
                }
                cells += [f"{wait:,.1f}", f"{took:,.0f}"]
                print(
                    f"  {contender.name}, {storage}, {case.name}: {wait:.1f} ms, {took:.0f} ms",
                    flush=True,
                )
            rows.append([storage, f"{case.name} ({case.messages:,})", *cells])
    head = ["storage", "operation (messages)"]
    for contender in servers:
        head += [f"{contender.name}: longest wait (ms)", "took (ms)"]
    report.table("Large removals: what a neighbour's PING waits", head, rows)
    report.write("removals", figures)
