"""``fetch(1000)`` with explicit acks: our client and nats-py, on the same nats-server."""

from __future__ import annotations

import asyncio
import time

import nats

import contenders
import report
from contenders import running
from rawsocket import RawConnection

MESSAGES = 50_000
BATCH = 1_000
PAYLOAD_BYTES = 100
CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}


async def by_nats_py(url: str, durable: str) -> float:
    connection = await nats.connect(url)
    try:
        stream = connection.jetstream()
        subscription = await stream.pull_subscribe(
            "bench.>", durable, config=nats.js.api.ConsumerConfig(max_ack_pending=2 * BATCH)
        )
        taken = 0
        started = time.perf_counter()
        while taken < MESSAGES:
            for message in await subscription.fetch(BATCH, timeout=10):
                await message.ack()
                taken += 1
        await connection.flush()
        return MESSAGES / (time.perf_counter() - started)
    finally:
        await connection.close()


async def by_our_client(url: str, durable: str) -> float:
    import ourclient

    return await ourclient.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH)


CLIENTS = {"nats-py": by_nats_py, "our client": by_our_client}


def run(rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
    with running(contenders.NATS_DEFAULT) as server:
        with RawConnection(server.host, server.port) as connection:
            connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", CONFIG)
            connection.publish_acked(MESSAGES, 16_000, PAYLOAD_BYTES)
        for round_number in range(rounds):
            for client_number, (name, fetch) in enumerate(CLIENTS.items()):
                durable = f"bench-{round_number}-{client_number}"
                rate = asyncio.run(fetch(server.url, durable))
                with RawConnection(server.host, server.port) as connection:
                    info = f"$JS.API.CONSUMER.INFO.{contenders.STREAM}.{durable}"
                    floor = connection.request(info)["ack_floor"]["stream_seq"]
                    connection.request(info.replace("INFO", "DELETE"))
                assert floor == MESSAGES, f"{name}: only {floor} of {MESSAGES} acknowledged"
                rates[name].append(rate)
                print(f"  round {round_number + 1}: {name}: {rate:,.0f}/s")
    base = report.median(rates["nats-py"])
    report.table(
        f"fetch({BATCH}), explicit acks, on nats-server, median of {rounds}",
        ["client", "messages/s", "range", "× nats-py"],
        [
            [
                name,
                f"{report.median(values):,.0f}",
                report.spread(values),
                f"{report.median(values) / base:.1f}",
            ]
            for name, values in rates.items()
        ],
    )
    report.write("fetching", {"rounds": rounds, "rates": rates})
