"""SIGKILL while a worker acknowledges: what was answered never comes again, the rest does come.

``make confirmations`` compares with nats-server.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import peers
from crash.confirmations import MESSAGES, attack
from portions import portion

KILLS = int(os.environ.get("HEADRACE_KILLS", str(portion(50, 20)))) // 5
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))


@pytest.mark.timeout(600)
def test_an_answered_acknowledgement_survives_killing_the_broker(tmp_path: Path) -> None:
    found = attack(peers.start_headrace, tmp_path, KILLS, SEED)
    print(found)
    assert not found.again, f"seed {SEED}: delivered again: {sorted(found.again)[:20]}"
    assert found.asked_again > 0  # or the kills came between the asks
    missing = set(range(1, MESSAGES + 1)) - found.delivered
    assert not missing, f"seed {SEED}: never delivered: {sorted(missing)[:20]}"
    assert found.info["ack_floor"]["stream_seq"] == MESSAGES
    assert found.info["num_ack_pending"] == found.info["num_pending"] == 0
