"""SIGKILL at random moments under load: no acknowledged message is lost, repeated or out of order.

This is a process crash: what the kernel had taken survives. Losing power is another test's matter.
``HEADRACE_KILLS`` sets the number of kills (50), ``HEADRACE_SEED`` the moments.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import peers
from crash.kill_checker import History, check
from crash.kill_load import Publisher, Requester, load, read_back

KILLS = int(os.environ.get("HEADRACE_KILLS", "50"))
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))
PUBLISHERS = 4
TOLD_EVERY = 100
EARLIEST_SECONDS, LATEST_SECONDS = 0.01, 0.06


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_acknowledged_message_is_lost_or_reordered_by_killing_the_broker(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    history = History()
    publishers = [Publisher(number, history) for number in range(PUBLISHERS)]
    port = peers.free_port()
    for cycle in range(KILLS):
        server = peers.start_headrace(tmp_path, port=port)
        try:
            with Requester(server.host, server.port) as requester:
                if cycle == 0:
                    requester.create_stream()
                promised = max(history.acknowledged.values(), default=0)
                found = requester.state()["last_seq"]
                assert found >= promised, f"kill {cycle}: {found} < acknowledged {promised}"
            seconds = moments.uniform(EARLIEST_SECONDS, LATEST_SECONDS)
            load(publishers, server.host, server.port, seconds, server.kill)
        finally:
            server.kill()
        if (cycle + 1) % TOLD_EVERY == 0:
            print(f"{cycle + 1} of {KILLS} kills, {len(history.acknowledged)} acknowledged")
    server = peers.start_headrace(tmp_path, port=port)
    try:
        with Requester(server.host, server.port) as requester:
            messages = requester.state()["messages"]
        verdict = check(history, read_back(server.host, server.port, messages))
    finally:
        assert server.stop() == 0, server.log_text()
    acknowledged = len(history.acknowledged)
    print(f"{KILLS} kills, {acknowledged} acknowledged, {messages} stored, seed {SEED}")
    assert not verdict.faults, f"seed {SEED}:\n{verdict}"
    assert acknowledged > KILLS * 10, f"only {acknowledged} acknowledged: no load to speak of"
