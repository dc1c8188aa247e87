"""A message past its TTL cannot be read, on the clock of the machine and on either server."""

from __future__ import annotations

import json
import time

import pytest
from nats.aio.client import Client

from headrace.api.times import parse_time

TTL_NS = 1_000_000_000
MESSAGES = 8
APART_NS = 31_000_000  # so that they expire in different parts of a quarter of a second
LATE_NS = {"headrace": 0, "nats-server": 1_000_000_000}
"""nats-server removes what expires soon after another 220 ms late, and a busy machine makes it later."""


async def test_a_message_is_read_until_its_ttl_is_over_and_not_after_it(
    connection: Client, request: pytest.FixtureRequest
) -> None:
    config = {"name": "LATE", "subjects": ["late.*"], "allow_msg_ttl": True, "allow_direct": True}
    await connection.request("$JS.API.STREAM.CREATE.LATE", json.dumps(config).encode())
    due_ns = {}
    for sequence in range(1, MESSAGES + 1):
        await connection.request(f"late.{sequence}", b"x", headers={"Nats-TTL": "1s"})
        found = await _read(connection, sequence)
        assert found is not None
        due_ns[sequence] = parse_time(found) + TTL_NS
        while time.time_ns() < due_ns[sequence] - TTL_NS + APART_NS:
            assert await _read(connection, sequence) is not None
    late_ns = 0
    while due_ns:
        for sequence, its_ns in list(due_ns.items()):
            asked_ns = time.time_ns()
            if await _read(connection, sequence) is None:
                assert time.time_ns() >= its_ns
                del due_ns[sequence]
            else:
                late_ns = max(late_ns, asked_ns - its_ns)
    server = request.node.callspec.params["connection"]
    assert late_ns <= LATE_NS[server]


async def _read(connection: Client, sequence: int) -> str | None:
    """When the message was stored; None if there is none."""
    body = json.dumps({"seq": sequence}).encode()
    answer = await connection.request("$JS.API.DIRECT.GET.LATE", body)
    return (answer.headers or {}).get("Nats-Time-Stamp")
