"""Where a copied message comes from: the header that says so, written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.headers import (
    SourceStamp,
    identity_of,
    read_origination,
    without_expectations,
)

TOKENS = st.text("abcXYZ%{}()$>*.,-_é", min_size=1, max_size=12)
BLOCKS = st.lists(
    st.sampled_from(
        [
            b"Own: 1",
            b"Nats-Msg-Id: x",
            b"Nats-Expected-Stream: S",
            b"Nats-Batch-Id: b",
            b"Nats-Stream-Source: OLD 7 > > a abcdefgh",
        ]
    ),
    max_size=4,
).map(lambda lines: b"\r\n".join([b"NATS/1.0", *lines, b"", b""]) if lines else b"")


@given(TOKENS, TOKENS, TOKENS, TOKENS, st.integers(1, 2**63), BLOCKS)
def test_what_is_put_into_a_header_is_read_from_it(
    name: str, filter: str, dest: str, subject: str, sequence: int, block: bytes
) -> None:
    index = f"{name} {filter} {dest}"
    stored = SourceStamp(index, "12345678").put(block, sequence, subject.encode())
    found = read_origination(stored)
    assert found is not None
    assert (found.source, found.sequence, found.identity) == (index, sequence, "12345678")
    assert stored.startswith(b"NATS/1.0\r\n")
    assert stored.endswith(b"\r\n\r\n")
    assert stored.count(b"Nats-Stream-Source") == 1
    assert b"Nats-Expected" not in stored
    assert stored.count(b"Own: 1") == block.count(b"Own: 1")


def test_the_words_are_those_of_the_public_server() -> None:
    stamp = SourceStamp("S s.a\fs.b t.a\f>", "TaOSCGN9")
    assert stamp.put(b"", 3, b"s.a") == (
        b"NATS/1.0\r\nNats-Stream-Source: S 3 s.a\fs.b t.a\f> s.a TaOSCGN9\r\n\r\n"
    )


@pytest.mark.parametrize(
    "value", [b"", b"S", b"S x > > a id", b"S -1 > > a id", b"S 1 > >", b"$JS.ACK.S.C.1.2.3.4.5"]
)
def test_a_header_that_says_nothing_of_use_is_none(value: bytes) -> None:
    assert read_origination(b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % value) is None


def test_a_header_without_an_identity_is_understood() -> None:
    found = read_origination(b"NATS/1.0\r\nNats-Stream-Source: S 1 > > s.a\r\n\r\n")
    assert found == ("S > >", 1, "", b"s.a")


def test_a_message_published_here_has_no_origin() -> None:
    assert read_origination(b"") is None
    assert read_origination(b"NATS/1.0\r\nOwn: 1\r\n\r\n") is None


def test_expectations_go_and_nothing_else() -> None:
    block = b"NATS/1.0\r\nNats-Expected-Stream: S\r\nOwn: 1\r\nNats-Batch-Id: b\r\n\r\n"
    assert without_expectations(block) == b"NATS/1.0\r\nOwn: 1\r\n\r\n"
    assert without_expectations(b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n") == b""
    own = b"NATS/1.0\r\nOwn: 1\r\n\r\n"
    assert without_expectations(own) is own


def test_two_lives_of_a_stream_have_two_identities() -> None:
    assert identity_of(1) == identity_of(1)
    assert identity_of(1) != identity_of(2)
    assert len(identity_of(1)) == 8
