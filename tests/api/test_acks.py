"""Ack subjects of both versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.api.acks import AckTokens, ack_prefix, parse_ack_subject

numbers = st.integers(0, 2**63)
asset_names = st.text("abcXYZ019_-%$", min_size=1)


@given(asset_names, asset_names, numbers, numbers, numbers)
def test_what_a_broker_writes_a_client_reads(
    stream: str, consumer: str, delivered: int, stream_seq: int, consumer_seq: int
) -> None:
    prefix = ack_prefix(stream, consumer).decode()
    subject = f"{prefix}{delivered}.{stream_seq}.{consumer_seq}.17.4"
    assert parse_ack_subject(subject) == AckTokens(
        stream, consumer, delivered, stream_seq, consumer_seq, 17, 4
    )


def test_the_longer_form_carries_a_domain_and_may_carry_more() -> None:
    tokens = parse_ack_subject("$JS.ACK.hub.szMpdrwD.S.C.1.2.3.4.5.extra.tokens")
    assert tokens == AckTokens("S", "C", 1, 2, 3, 4, 5, "hub")
    assert parse_ack_subject("$JS.ACK._.szMpdrwD.S.C.1.2.3.4.5").domain == ""


@pytest.mark.parametrize(
    "subject",
    ["", "foo", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK.S.C.a.2.3.4.5"],
)
def test_anything_else_is_refused(subject: str) -> None:
    with pytest.raises(ValueError, match="not an ack subject"):
        parse_ack_subject(subject)
