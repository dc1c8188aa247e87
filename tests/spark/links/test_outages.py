from __future__ import annotations

import logging

import pytest

from headrace.errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)
from headrace.spark.links.outages import ServerPatience, may_pass

from ..virtual import Time, steady


@pytest.mark.parametrize(
    ("error", "yes"),
    [
        (ConnectionClosedError("x"), True),
        (ConnectFailedError("x"), True),
        (RequestTimeoutError("x"), True),
        (NoRespondersError("x"), True),
        (JetStreamApiError(503, 10008, "temporarily unavailable"), True),
        (JetStreamApiError(500, 10009, "can not handle request"), True),
        (JetStreamApiError(409, 10158, "duplicate message id is in process"), True),
        (JetStreamApiError(400, 10003, "bad request"), False),
        (AuthorizationError("x"), False),
        (ConfigurationError("x"), False),
    ],
)
def test_what_may_be_over_soon_is_waited_for(error: HeadraceError, yes: bool) -> None:
    assert may_pass(error) is yes


def test_the_pauses_grow_to_five_seconds_and_end_with_the_time() -> None:
    time = Time()
    patience = ServerPatience(20.0, "stream 'S'", time.clock, time.sleep, steady)
    away = ConnectionClosedError("refused")
    with pytest.raises(ConnectionClosedError, match="refused"):
        while True:
            patience.pause(away)
    assert time.slept[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
    assert max(time.slept) == 5.0
    assert sum(time.slept) == pytest.approx(20.0)


def test_an_outage_is_said_once_and_a_stale_connection_not_at_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    patience = ServerPatience(60.0, "stream 'S'", time.clock, time.sleep, steady)
    with caplog.at_level(logging.WARNING, "headrace.spark"):
        patience.pause(ConnectionClosedError("stale"))
        patience.restart()
        assert caplog.messages == []
        for _ in range(8):
            patience.pause(ConnectionClosedError("refused"))
    assert caplog.messages == ["waiting up to 59.9 s for stream 'S': refused"]
