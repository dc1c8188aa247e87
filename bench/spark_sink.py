"""Writing rows of 100 bytes as a task of Spark does it, from Arrow batches to acknowledged messages.

No Spark runs beside: it would take the cores that writer and server need, and its share is the same whatever
writes. What Spark adds per row is in ``docs/spark.md``.
"""

from __future__ import annotations

import itertools
import json
import time

import pyarrow as pa

import contenders
import cpu
import peers
import report
from contenders import Contender, running
from headrace.spark.links.link import Link
from headrace.spark.links.pool import POOL
from headrace.spark.options import Connection
from headrace.spark.sink.layout import Column, lay_out
from headrace.spark.sink.markers import PlanId
from headrace.spark.sink.options import parse_sink_options
from headrace.spark.sink.task import TaskIdentity
from headrace.spark.sink.writing import Job, write_rows

ROWS = 200_000
ARROW_ROWS = 10_000  # as Spark cuts them
WARM_UP = 20_000
DELIVERIES = ("atLeastOnce", "dedupe", "exactlyOnce")
TARGETS = {"atLeastOnce": 100_000, "exactlyOnce": 40_000}
_numbers = itertools.count(1)


def batches(rows: int) -> list[pa.RecordBatch]:
    return [
        pa.record_batch(
            [pa.array([b"%0100d" % number for number in range(at, at + ARROW_ROWS)])],
            names=["data"],
        )
        for at in range(0, rows, ARROW_ROWS)
    ]


def write(server: peers.ServerProcess, delivery: str, rows: int) -> tuple[float, float, float]:
    """Rows a second, and microseconds of processor time a row of the writer and of the server."""
    name = f"SINK{next(_numbers)}"
    link = Link.open(Connection(servers=(server.url,)))
    config = {"name": name, "subjects": [f"{name}.>", f"_sink.{name}.>"], "allow_atomic": True}
    answer = link.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
    assert b'"error"' not in answer.payload, answer
    options = parse_sink_options(
        {
            "servers": server.url,
            "stream": name,
            "subject": f"{name}.rows",
            "delivery": delivery,
            "sinkId": "bench",
        },
        streaming=True,
    )
    job = Job(options, lay_out(options, [Column("data", "binary")]), PlanId(1, "bench"))
    made = batches(rows)
    served, mine, begun = (
        cpu.of_process(server.process.pid),
        cpu.of_ourselves(),
        time.perf_counter(),
    )
    done = write_rows(job, TaskIdentity(0, 0, 0, "bench"), iter(made))
    seconds = time.perf_counter() - begun
    mine, served = cpu.of_ourselves() - mine, cpu.of_process(server.process.pid) - served
    POOL.close()
    state = json.loads(link.request(f"$JS.API.STREAM.INFO.{name}").payload)["state"]
    link.close()
    assert done.rows == rows, done
    assert state["messages"] >= rows, state
    return rows / seconds, mine / rows * 1e6, served / rows * 1e6


def run(rounds: int, servers: list[Contender]) -> None:
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for number in range(rounds):
        for contender in servers:
            with running(contender) as server:
                write(server, "atLeastOnce", WARM_UP)
                for delivery in DELIVERIES:
                    figures = write(server, delivery, ROWS)
                    found.setdefault((delivery, contender.name), []).append(figures)
                    print(
                        f"  round {number + 1}: {delivery}, {contender.name}: {figures[0]:,.0f} rows/s"
                    )
    rows = []
    for (delivery, name), figures_ in found.items():
        rates, mine, served = (list(column) for column in zip(*figures_, strict=True))
        meaning = next(each.meaning for each in servers if each.name == name)
        rate = report.median(rates)
        rows.append(
            [
                delivery,
                name,
                meaning,
                f"{rate:,.0f}",
                report.spread(rates),
                f"{report.median(mine):.2f}",
                f"{report.median(served):.2f}",
            ]
        )
        if name == contenders.HEADRACE.name and delivery in TARGETS:
            report.claim(
                f"rows a second into a stream, {delivery}",
                f"{rate:,.0f}",
                rate,
                at_least=TARGETS[delivery],
                unit="",
            )
    report.table(
        f"Writing {ROWS:,} rows of 100 bytes by one task, median of {rounds}",
        [
            *("delivery", "server", "acknowledged is", "rows/s", "range"),
            *("writer µs/row", "server µs/row"),
        ],
        rows,
    )
    report.write(
        "spark_sink", {"rounds": rounds, **{f"{d} / {s}": v for (d, s), v in found.items()}}
    )
