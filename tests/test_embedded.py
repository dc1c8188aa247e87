"""The broker with its client in one process, with and without an event loop."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from headrace import sync
from headrace.broker.server.config.options import BrokerOptions, WebSocketOptions
from headrace.client.events import LameDuck
from headrace.errors import AuthorizationError, ConfigurationError, ConnectionClosedError


def test_threads_share_a_broker_and_its_connections(tmp_path: Path) -> None:
    before = threading.active_count()
    with sync.Broker(port=-1, store_dir=tmp_path) as broker, broker.connect() as connection:
        js = connection.jetstream()
        js.create_stream(name="S", subjects=["s"])
        with js.publisher() as publisher:
            workers = [
                threading.Thread(target=lambda: [publisher.send("s", b"x") for _ in range(500)])
                for _ in range(3)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert publisher.acked == 1_500
        consumer = js.stream("S").create_consumer(durable_name="c", max_ack_pending=-1)
        batch = consumer.fetch(1_500)
        assert len(batch) == 1_500
        batch.ack()
        with broker.connect() as second, sync.connect(broker.client_url) as far:
            heard = far.subscribe("x")
            far.flush()
            second.publish("x", b"near")
            assert heard.next(2).payload == b"near"
        connection.flush()
        assert consumer.info().num_ack_pending == 0
    assert threading.active_count() == before
    with pytest.raises(ConnectionClosedError):
        connection.publish("x")
    with pytest.raises(ConnectionClosedError):
        broker.connect()


def test_a_blocking_broker_that_cannot_start_leaves_nothing() -> None:
    before = threading.active_count()
    with sync.Broker(port=-1) as broker:
        with pytest.raises(ConfigurationError, match="another process is listening"):
            sync.Broker(port=broker.port).start()
        with pytest.raises(ConfigurationError, match="unknown connection option"):
            broker.connect(nonsense=1)  # type: ignore[call-arg]
    with sync.Broker(port=-1, token="t") as broker, pytest.raises(AuthorizationError):
        broker.connect()
    assert threading.active_count() == before


def test_a_broker_on_a_thread_takes_other_settings_while_it_serves() -> None:
    broker = sync.Broker(port=-1, token="t", websocket=WebSocketOptions(port=-1))
    with pytest.raises(ConfigurationError, match="not started"):
        broker.reload(BrokerOptions())
    broker.announce_stop()  # to nobody
    with broker, broker.connect(token="t"):
        assert (broker.websocket_url or "").startswith("ws://127.0.0.1:")
        old = BrokerOptions(port=-1, token="t", websocket=WebSocketOptions(port=-1))
        assert broker.reload(dataclasses.replace(old, token="u")) == []
        with pytest.raises(AuthorizationError):
            broker.connect(token="t")
        with broker.connect(token="u") as other:
            other.flush()
            told = other.events()
            broker.announce_stop()
            assert isinstance(next(told), LameDuck)
