"""Naks with a delay: what their body may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.config.sizes import DURATION_NS_MAX
from headrace.broker.core.jetstream.consumer.acks import nak_delay_ns

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("body", "delay_ns"),
    [
        (b"-NAK", 0),
        (b"-NAK ", 0),
        (b'-NAK {"delay": 1500}', 1500),
        (b'-NAK {"delay":0}', 0),
        (b"-NAK {}", 0),
        (b"-NAK 5s", 5 * SECOND),
        (b"-NAK 1m30s", 90 * SECOND),
        (b"-NAK 250ms", SECOND // 4),
    ],
)
def test_a_delay_is_a_document_or_a_duration(body: bytes, delay_ns: int) -> None:
    assert nak_delay_ns(body) == delay_ns


@pytest.mark.parametrize(
    "body",
    [
        b"-NAK soon",
        b"-NAK {",
        b'-NAK {"delay":"1s"}',
        b'-NAK {"delay":1.5}',
        b'-NAK {"delay":-7}',
        b"-NAK \xff\xfe",
        b"-NAK " + b'{"a":' * 5_000,
    ],
)
def test_one_that_cannot_be_read_is_none(body: bytes) -> None:
    assert nak_delay_ns(body) == 0


@given(st.binary(max_size=40) | st.integers().map(lambda number: b'{"delay":%d}' % number))
def test_whatever_is_said_the_delay_is_one_that_a_timer_can_take(text: bytes) -> None:
    assert 0 <= nak_delay_ns(b"-NAK " + text) <= DURATION_NS_MAX
