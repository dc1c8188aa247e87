"""SIGKILL at random moments under load: no acknowledged message is lost, repeated or out of order.

This is a process crash: what the kernel had taken survives. Losing power is another test's matter.
``HEADRACE_KILLS`` sets the number of kills (6; 15 in ``make test-all``), ``HEADRACE_SEED`` the moments. After
every 100 the whole history is judged, and the next begin with an empty store, since a start takes longer the
more there is.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import peers
from crash.kill_checker import History, check
from crash.kill_load import Publisher, Requester, load, read_back
from portions import portion

KILLS = int(os.environ.get("HEADRACE_KILLS", str(portion(15, 6))))
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))
PUBLISHERS = 4
KILLS_OF_A_LIFE = 100
EARLIEST_SECONDS, LATEST_SECONDS = 0.01, 0.06
ACKNOWLEDGED_EACH = 11  # on average, at least


def lives() -> list[int]:
    """How many kills each life of a store has."""
    whole, rest = divmod(KILLS, KILLS_OF_A_LIFE)
    return [KILLS_OF_A_LIFE] * whole + [rest] * bool(rest)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("life", "kills"), list(enumerate(lives())))
def test_no_acknowledged_message_is_lost_or_reordered_by_killing_the_broker(
    tmp_path: Path, life: int, kills: int
) -> None:
    seed = SEED + life
    moments = random.Random(seed)
    history = History()
    publishers = [Publisher(number, history) for number in range(PUBLISHERS)]
    port = peers.free_port()
    for cycle in range(kills):
        server = peers.start_headrace(tmp_path, port=port)
        try:
            with Requester(server.host, server.port) as requester:
                if cycle == 0:
                    requester.create_stream()
                promised = max(history.acknowledged.values(), default=0)
                found = requester.state()["last_seq"]
                assert found >= promised, f"kill {cycle}: {found} < acknowledged {promised}"
            seconds = moments.uniform(EARLIEST_SECONDS, LATEST_SECONDS)
            wanted = ACKNOWLEDGED_EACH * (cycle + 1)
            load(publishers, server.host, server.port, seconds, server.kill, wanted)
        finally:
            server.kill()
    server = peers.start_headrace(tmp_path, port=port)
    try:
        with Requester(server.host, server.port) as requester:
            messages = requester.state()["messages"]
        verdict = check(history, read_back(server.host, server.port, messages))
    finally:
        assert server.stop() == 0, server.log_text()
    acknowledged = len(history.acknowledged)
    print(f"{kills} kills, {acknowledged} acknowledged, {messages} stored, seed {seed}")
    assert not verdict.faults, f"seed {seed}:\n{verdict}"
    assert acknowledged >= kills * ACKNOWLEDGED_EACH, f"only {acknowledged}: no load to speak of"
