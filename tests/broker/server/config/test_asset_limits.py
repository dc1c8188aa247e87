"""Limits of an operator as clients meet them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.broker.server import Broker
from headrace.errors import ConfigurationError


@pytest.mark.parametrize(("max_bytes", "err_code"), [(1000, None), (1001, 10028)])
async def test_a_stream_may_ask_for_no_more_than_there_is(
    max_bytes: int, err_code: int | None
) -> None:
    config = {"name": "S", "subjects": ["s"], "storage": "memory", "max_bytes": max_bytes}
    document = json.dumps(config).encode()
    async with Broker(memory_bytes_max=1000) as broker, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB r 1\r\n')
        writer.write(b"PUB $JS.API.STREAM.CREATE.S r %d\r\n%b\r\n" % (len(document), document))
        await reader.readline()
        answer = json.loads(await reader.readline())
        writer.close()
    assert answer.get("error", {}).get("err_code") == err_code


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"subscriptions_max": 0}, "subscriptions_max: 0; accepted is more than 0"),
        ({"pings_out_max": -1}, "pings_out_max: -1; accepted is more than 0"),
        (
            {"pin_handover": "later"},
            "pin_handover: 'later'; accepted are 'drain' and 'immediate'",
        ),
        ({"file_bytes_max": -1}, "file_bytes_max: -1; accepted is 0 or more"),
        ({"payload_cache_bytes": -1}, "payload_cache_bytes: -1; accepted is 0 or more"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(setting: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Broker(**setting)
