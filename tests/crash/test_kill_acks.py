"""SIGKILL while a worker acknowledges: what was answered never comes again, the rest does come."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import peers
from crash.kill_load import STREAM, Requester
from crash.kill_worker import DURABLE, Worker

KILLS = int(os.environ.get("HEADRACE_KILLS", "50")) // 5
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))
MESSAGES = 20_000
ACK_WAIT_SECONDS = 2
TOLD_EVERY = 100
EARLIEST_SECONDS, LATEST_SECONDS = 0.02, 0.15


def fill(server: peers.ServerProcess) -> None:
    """A stream of messages and a durable consumer that wants each acknowledged."""
    with Requester(server.host, server.port) as requester:
        requester.create_stream()
        requester.publish("crash.0", MESSAGES)
        config = {
            "durable_name": DURABLE,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_SECONDS * 10**9,
            "max_ack_pending": 1000,
        }
        body = {"stream_name": STREAM, "config": config}
        reply = requester.ask(f"CONSUMER.CREATE.{STREAM}.{DURABLE}", body)
        assert "error" not in reply, reply


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_answered_acknowledgement_survives_killing_the_broker(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    worker = Worker()
    port = peers.free_port()
    for cycle in range(KILLS):
        server = peers.start_headrace(tmp_path, port=port)
        try:
            if cycle == 0:
                fill(server)
            answered = set(worker.answered)
            before = len(worker.delivered)
            seconds = moments.uniform(EARLIEST_SECONDS, LATEST_SECONDS)
            worker.work(server.host, server.port, seconds, server.kill)
            again = answered & set(worker.delivered[before:])
            assert not again, f"seed {SEED}, kill {cycle}: delivered again: {sorted(again)[:20]}"
        finally:
            server.kill()
        if (cycle + 1) % TOLD_EVERY == 0:
            print(f"{cycle + 1} of {KILLS} kills, {len(worker.answered)} acks answered")
    server = peers.start_headrace(tmp_path, port=port)
    try:
        answered = set(worker.answered)
        before = len(worker.delivered)
        info = worker.finish(server.host, server.port, patience=10.0 * ACK_WAIT_SECONDS)
        again = answered & set(worker.delivered[before:])
    finally:
        assert server.stop() == 0, server.log_text()
    assert not again, f"seed {SEED}: delivered again at the end: {sorted(again)[:20]}"
    missing = set(range(1, MESSAGES + 1)) - set(worker.delivered)
    assert not missing, f"seed {SEED}: never delivered: {sorted(missing)[:20]}"
    assert info["ack_floor"]["stream_seq"] == MESSAGES
    assert info["num_ack_pending"] == info["num_pending"] == 0
