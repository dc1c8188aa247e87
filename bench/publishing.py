"""Acked publishing through one connection, 100-byte payloads, 16,000 in flight."""

from __future__ import annotations

import contenders
import cpu
import ourclient
import peers
import report
from contenders import Contender, running
from rawsocket import RawConnection

WINDOW = 16_000
PAYLOAD_BYTES = 100
SPREAD_BYTES = 40
WARM_UP = 2_000
# Enough for a second or more each, without waiting minutes for the slow one.
MESSAGES = {contenders.NATS_ALWAYS.name: 20_000}
MESSAGES_OTHERWISE = 200_000

CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}


def by_raw_socket(
    server: peers.ServerProcess, messages: int, spread_bytes: int = 0, *, message_ids: bool = False
) -> float:
    """Messages per second; every one acknowledged, and counted by the server afterwards."""
    with RawConnection(server.host, server.port) as connection:
        connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", CONFIG)
        connection.publish_acked(WARM_UP, WINDOW, PAYLOAD_BYTES)
        seconds = connection.publish_acked(
            messages, WINDOW, PAYLOAD_BYTES, spread_bytes=spread_bytes, message_ids=message_ids
        )
        state = connection.request(f"$JS.API.STREAM.INFO.{contenders.STREAM}")["state"]
        assert state["messages"] == WARM_UP + messages, state
    return messages / seconds


def by_raw_socket_mixed(server: peers.ServerProcess, messages: int) -> float:
    """Payloads of 60 to 140 bytes: no two in a row of one size, the parser's less favourable case."""
    return by_raw_socket(server, messages, SPREAD_BYTES)


def by_raw_socket_named(server: peers.ServerProcess, messages: int) -> float:
    """Each message with an id, which the server looks up and remembers."""
    return by_raw_socket(server, messages, message_ids=True)


def by_our_client(
    server: peers.ServerProcess, messages: int, *, deduplicate: bool = False
) -> float:
    """The same through our client's windowed publisher."""
    sizes = (messages, WINDOW, PAYLOAD_BYTES, WARM_UP)
    return ourclient.publish(server.url, CONFIG, *sizes, deduplicate=deduplicate)


def by_our_client_named(server: peers.ServerProcess, messages: int) -> float:
    """Our client gives the ids."""
    return by_our_client(server, messages, deduplicate=True)


PUBLISHERS = {
    "raw socket": by_raw_socket,
    "raw socket, 60 … 140 bytes": by_raw_socket_mixed,
    "raw socket, message ids": by_raw_socket_named,
    "our client": by_our_client,
    "our client, message ids": by_our_client_named,
}


def run(rounds: int, servers: list[Contender], publishers: list[str]) -> None:
    rates: dict[tuple[str, str], list[float]] = {}
    costs: dict[tuple[str, str], list[float]] = {}
    for round_number in range(rounds):
        # Rotated, so that nobody is always the first after a pause.
        cut = round_number % len(servers)
        for contender in servers[cut:] + servers[:cut]:
            messages = MESSAGES.get(contender.name, MESSAGES_OTHERWISE)
            for publisher in publishers:
                with running(contender) as server:
                    before = cpu.of_process(server.process.pid)
                    rate = PUBLISHERS[publisher](server, messages)
                    used = cpu.of_process(server.process.pid) - before
                costs.setdefault((publisher, contender.name), []).append(used / messages * 1e6)
                rates.setdefault((publisher, contender.name), []).append(rate)
                print(f"  round {round_number + 1}: {publisher}, {contender.name}: {rate:,.0f}/s")
    medians = {key: report.median(values) for key, values in rates.items()}
    rows = []
    for (publisher, name), rate in medians.items():
        meaning = next(each.meaning for each in servers if each.name == name)
        ours = medians.get((publisher, contenders.HEADRACE.name))
        ratio = f"{ours / rate:.2f}" if ours else "–"
        spread = report.spread(rates[publisher, name])
        cost = f"{report.median(costs[publisher, name]):.1f}"
        rows.append([publisher, name, meaning, f"{rate:,.0f}", spread, ratio, cost])
    report.table(
        f"Acked publishing, messages/s, {WINDOW:,} in flight, median of {rounds}",
        [
            *("publisher", "server", "acknowledged is", "messages/s", "range", "ours is × this"),
            "server µs/message",
        ],
        rows,
    )
    report.write(
        "publishing",
        {"rounds": rounds, "rates": {f"{p} / {s}": values for (p, s), values in rates.items()}},
    )
