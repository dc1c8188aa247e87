"""The console and the pages of numbers under fire for a moment, and the requests that were once answered 500.

``make fuzz-web`` is the whole.
"""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from portions import portion

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
SECONDS = float(portion(2, few=1))
SEED = 7

sys.path.insert(0, str(FUZZ))
service: Any = importlib.import_module("web_service")
requests: Any = importlib.import_module("web_requests")
sys.path.remove(str(FUZZ))


async def test_nothing_that_strangers_and_peers_say_ends_it_or_is_answered_500() -> None:
    fuzzed = service.Fuzzed(SEED)
    await fuzzed.run(SECONDS)
    assert fuzzed.requests > 20
    assert fuzzed.commands.total() >= 1
    assert {"200", "400", "404"} <= set(fuzzed.statuses)


@pytest.mark.parametrize("make", [requests.console_request, requests.page_request])
def test_what_the_fuzzer_sends_is_found_again_by_its_seed(make: Any) -> None:
    first, second = (
        [make(random.Random(f"{SEED} {number}")) for number in range(50)] for _ in range(2)
    )
    assert first == second
    assert len({data for data, _ in first}) > 40


async def test_an_address_that_is_none_is_refused_in_words() -> None:
    from headrace import Broker

    async with Broker(monitor_port=0) as broker:
        fuzzed = service.Fuzzed(SEED)
        port = int(str(broker.monitor_url).rpartition(":")[2])
        answer = await fuzzed.play(port, b"GET //[ HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")


async def test_requests_that_once_failed_are_answered(world: Any) -> None:
    for path in sorted(service.KEPT.glob("*.bin")):
        head, _, body = path.read_bytes().partition(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ", 2)
        response = await world.http.request(method, target, content=body)
        assert response.status_code != 500, path
