"""The reply subject of a fast batch's message, read and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.headers import FastReply, read_fast_reply

TOKENS = st.text("abcXYZ0129-_$%", min_size=1, max_size=8)


@given(
    prefix=st.lists(TOKENS, min_size=1, max_size=3),
    batch=TOKENS,
    flow=st.integers(1, 65_535),
    gap=st.sampled_from(["ok", "fail"]),
    place=st.integers(2, 2**64 - 2),
    operation=st.integers(1, 4),
)
def test_what_is_written_is_read(
    prefix: list[str], batch: str, flow: int, gap: str, place: int, operation: int
) -> None:
    reply = f"{'.'.join(prefix)}.{batch}.{flow}.{gap}.{place}.{operation}.$FI"
    assert read_fast_reply(reply.encode()) == FastReply(
        batch.encode(), flow, gap == "ok", place, operation
    )


@given(st.lists(st.one_of(TOKENS, st.sampled_from(["ok", "fail", "1", "0", "10"])), max_size=9))
def test_anything_is_read_or_refused(tokens: list[str]) -> None:
    found = read_fast_reply(".".join([*tokens, "$FI"]).encode())
    if found is not None:
        assert found.sequence > 0
        assert found.flow > 0
        assert 0 <= found.operation <= 4
        assert len(tokens) >= 6


@pytest.mark.parametrize(
    ("flow", "read"), [("0", 10), ("-1", 10), ("x", 10), ("70000", 65_535), ("3", 3)]
)
def test_a_flow_that_is_none_counts_as_ten(flow: str, read: int) -> None:
    found = read_fast_reply(f"I.b.{flow}.ok.1.0.$FI".encode())
    assert found is not None
    assert found.flow == read


@pytest.mark.parametrize(
    "reply",
    [
        "I.b.10.ok.1.5.$FI",
        "I.b.10.ok.1.1.$FI",
        "I.b.10.ok.2.0.$FI",
        "I.b.10.ok.1.3.$FI",
        "I.b.10.ok.0.1.$FI",
        "I.b.10.ok.18446744073709551615.1.$FI",
        "I.b.10.OK.1.0.$FI",
        "b.10.ok.1.0.$FI",
        ".$FI",
    ],
)
def test_what_is_not_of_the_form_is_refused(reply: str) -> None:
    assert read_fast_reply(reply.encode()) is None
