"""The Spark source: JSON decoded in the reader, against the raw payload and Spark's from_json."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import report
from contenders import HEADRACE, STREAM, running
from headrace.spark.links.link import Link
from headrace.spark.options import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    import peers
    from spark import Bench, Cost

ROWS = 1_000_000
IN_FLIGHT = 4_000
COLUMNS = "id bigint, customer string, amount double, paid boolean, at timestamp"


def document(number: int) -> bytes:
    """About a hundred bytes, five fields."""
    fields = {
        "id": number,
        "customer": f"customer-{number % 1000}",
        "amount": number / 4,
        "paid": number % 3 == 0,
        "at": f"2024-01-02T03:04:{number % 60:02d}Z",
    }
    return json.dumps(fields, separators=(",", ":")).encode()


@contextmanager
def filled() -> Iterator[peers.ServerProcess]:
    """A server whose stream has so many documents."""
    with running(HEADRACE) as server:
        link = Link.open(Connection(servers=(server.url,)))
        config = {"name": STREAM, "subjects": ["bench.>"], "storage": "file"}
        link.request(link.api("STREAM", "CREATE", STREAM), json.dumps(config).encode())
        for first in range(0, ROWS, IN_FLIGHT):
            numbers = range(first, min(first + IN_FLIGHT, ROWS))
            link.request_many([(f"bench.{n % 1000}", document(n)) for n in numbers])
        link.close()
        yield server


def decoding(bench: Bench) -> None:
    """The same five columns, three ways; ``data`` alone shows what reading costs."""
    from spark import COST_HEAD, cost_row, rate_of

    with filled() as server:
        reader = bench.session.read.format("jetstream").options(servers=server.url, maxTasks=1)
        raw = reader.schema("data binary").load(STREAM)
        ways: dict[str, Any] = {
            "data alone": raw,
            "valueFormat=json": reader.schema(COLUMNS).option("valueFormat", "json").load(STREAM),
            "data, from_json": raw.selectExpr(
                f"from_json(cast(data as string), '{COLUMNS}') AS value"
            ).select("value.*"),
        }
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        for number in range(bench.rounds + 1):
            for name, df in ways.items():
                cost = bench.run(server, df, ROWS)
                if number:  # the JVM compiles in the first round
                    costs[name].append(cost)
    report.table(
        f"JSON of five fields in Spark, {len(document(ROWS))} B, one task",
        COST_HEAD,
        [cost_row(name, each) for name, each in costs.items()],
    )
    ours, theirs = rate_of(costs["valueFormat=json"]), rate_of(costs["data, from_json"])
    report.claim(
        "Spark source: JSON, against from_json",
        f"{ours:,.0f} and {theirs:,.0f} rows/s",
        ours / theirs,
        at_least=2,
    )

    def slowest(name: str) -> float:
        """The time a row takes where server, Python worker and JVM have a core each."""
        return max(
            report.median([getattr(each, part) for each in costs[name]])
            for part in ("server", "python", "jvm")
        )

    fast, slow = slowest("valueFormat=json"), slowest("data, from_json")
    report.claim(
        "Spark source: JSON, processor time of the slowest process, against from_json",
        f"{fast:.2f} and {slow:.2f} µs a row",
        slow / fast,
        at_least=2,
    )

    def processor(name: str) -> float:
        return report.median([each.python + each.jvm for each in costs[name]])

    read = processor("data alone")
    decoded = {name: processor(name) for name in ("valueFormat=json", "data, from_json")}
    for what, without in (("with reading", 0.0), ("decoding alone", read)):
        fast, slow = (each - without for each in decoded.values())
        report.claim(
            f"Spark source: JSON, processor time of Python and the JVM, {what}, against from_json",
            f"{fast:.2f} and {slow:.2f} µs a row",
            slow / fast,
            at_least=2,
        )
