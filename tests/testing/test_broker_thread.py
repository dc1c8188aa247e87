"""``testing.broker``: a broker in a thread of its own, for whoever has no loop."""

from __future__ import annotations

import socket

import pytest

from headrace.errors import ConfigurationError
from headrace.testing.broker import BrokerThread


def test_a_broker_runs_beside_a_test_without_a_loop() -> None:
    with BrokerThread(monitor_port=0) as broker:
        assert broker.monitor_url is not None
        with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as client:
            assert client.recv(5) == b"INFO "
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", broker.port), timeout=5)


def test_a_failing_start_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="port"), BrokerThread(port=99_999):
        pass
