"""``fetch(1000)`` with explicit acks: our client and nats-py, on the same nats-server."""

from __future__ import annotations

import time

import nats

import contenders
import ourclient
import peers
import report
from contenders import running
from rawsocket import RawConnection

MESSAGES = 100_000
BATCH = 1_000
PAYLOAD_BYTES = 100
CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}


def by_nats_py(url: str, durable: str) -> float:
    async def work() -> float:
        connection = await nats.connect(url)
        try:
            stream = connection.jetstream()
            subscription = await stream.pull_subscribe(
                "bench.>", durable, config=nats.js.api.ConsumerConfig(max_ack_pending=2 * BATCH)
            )
            taken = size = 0
            started = time.perf_counter()
            while taken < MESSAGES:
                for message in await subscription.fetch(BATCH, timeout=10):
                    size += len(message.data)
                    await message.ack()
                    taken += 1
            await connection.flush()
            assert size, "payloads were read"
            return MESSAGES / (time.perf_counter() - started)
        finally:
            await connection.close()

    return ourclient.run(work())


def one_by_one(url: str, durable: str) -> float:
    return ourclient.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH, ack_one_by_one=True)


def whole_batches(url: str, durable: str) -> float:
    return ourclient.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH, ack_one_by_one=False)


CLIENTS = {
    "nats-py": by_nats_py,
    "our client, await message.ack()": one_by_one,
    "our client, await batch.ack()": whole_batches,
}


def check_and_forget(server: peers.ServerProcess, name: str, durable: str) -> None:
    """Everything must be acknowledged; nats-server counts a little behind, so it is asked again."""
    call = f"$JS.API.CONSUMER.INFO.{contenders.STREAM}.{durable}"
    deadline = time.monotonic() + 10.0
    with RawConnection(server.host, server.port) as connection:
        while (floor := connection.request(call)["ack_floor"]["stream_seq"]) != MESSAGES:
            assert time.monotonic() < deadline, f"{name}: {floor} of {MESSAGES} acknowledged"
            time.sleep(0.05)
        connection.request(call.replace("INFO", "DELETE"))


def run(rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
    with running(contenders.NATS_DEFAULT) as server:
        with RawConnection(server.host, server.port) as connection:
            connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", CONFIG)
            connection.publish_acked(MESSAGES, 16_000, PAYLOAD_BYTES)
        for round_number in range(rounds):
            for client_number, (name, fetch) in enumerate(CLIENTS.items()):
                durable = f"bench-{round_number}-{client_number}"
                rate = fetch(server.url, durable)
                check_and_forget(server, name, durable)
                rates[name].append(rate)
                print(f"  round {round_number + 1}: {name}: {rate:,.0f}/s")
    base = report.median(rates["nats-py"])
    report.table(
        f"fetch({BATCH}), explicit acks, on nats-server, {ourclient.loop_name}, median of {rounds}",
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
    report.write("fetching", {"rounds": rounds, "loop": ourclient.loop_name, "rates": rates})
