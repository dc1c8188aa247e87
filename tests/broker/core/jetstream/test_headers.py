from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.headers import (
    header_value,
    message_id,
    read_headers,
    sole_expectations,
    sole_message_ids,
)


def block(*lines: str) -> bytes:
    return ("NATS/1.0\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n").encode()


def test_only_headers_of_the_server_are_read() -> None:
    found = read_headers(block("K: v", "Nats-Msg-Id:  one ", "Nats-TTL:\t5s"))
    assert found == {b"Nats-Msg-Id": b"one ", b"Nats-TTL": b"\t5s"}


def test_names_are_compared_exactly() -> None:
    assert read_headers(block("nats-msg-id: one", "NATS-Msg-Id: two")) == {}


def test_the_first_of_repeated_headers_counts() -> None:
    assert read_headers(block("Nats-Msg-Id: one", "Nats-Msg-Id: two"))[b"Nats-Msg-Id"] == b"one"


def test_the_message_id_is_found_without_reading_the_rest() -> None:
    assert message_id(block("K: v", "Nats-Msg-Id: one")) == b"one"
    assert message_id(block("X-Nats-Msg-Id: one")) == b""
    assert message_id(b"") == b""


USUAL = st.from_regex(rb"[!-\xff]{1,5}", fullmatch=True).map(
    lambda name: b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % name
)
ODD = st.one_of(
    st.sampled_from([b"", b"A: b\r\n", b"Nats-TTL: 1s\r\n", b"X-Nats-Msg-Id: a\r\n"]).flatmap(
        lambda line: st.from_regex(rb"[ -~]{0,4}", fullmatch=True).flatmap(
            lambda name: st.sampled_from(
                [
                    b"NATS/1.0\r\n%bNats-Msg-Id: %b\r\n\r\n" % (line, name),
                    b"NATS/1.0\r\nNats-Msg-Id: %b\r\n%b\r\n" % (name, line),
                    b"NATS/1.0\r\nNats-Msg-Id:%b\r\n%b" % (name, line),
                    b"NATS/1.0\r\n%b\r\n" % line,
                ]
            )
        )
    ),
    st.lists(
        st.sampled_from(
            [b"NATS/1.0\r\n", b"Nats-Msg-Id: ", b"\r\n", b"\0", b" ", b"a", b"\n", b"\x0b"]
        )
        | USUAL,
        max_size=4,
    ).map(b"".join),
)


def alone(block: bytes) -> bytes | None:
    """The id of a block that has nothing else of the server's own, by reading all of it."""
    own = [line for line in block.split(b"\r\n")[1:] if line.startswith(b"Nats-")]
    return b"" if not own else message_id(block) or None if len(own) == 1 else None


@given(USUAL | ODD)
def test_an_id_is_alone_if_no_other_header_of_the_server_is_there(block: bytes) -> None:
    found, said = sole_message_ids([block]), alone(block)
    if found is None:
        assert said is None or said.split() != [said]
    else:
        assert found == ([said] if said else []) and said is not None


@given(st.lists(USUAL, min_size=1, max_size=6))
def test_the_ids_of_usual_blocks_are_found_together(blocks: list[bytes]) -> None:
    assert sole_message_ids(blocks) == [message_id(block) for block in blocks]


@given(st.lists(USUAL | ODD, min_size=1, max_size=4) | st.lists(ODD, min_size=1, max_size=3))
def test_ids_are_found_together_only_if_each_is_alone(blocks: list[bytes]) -> None:
    found = sole_message_ids(blocks)
    if found is not None:
        assert [alone(block) for block in blocks] == (found or [b""] * len(blocks))


def test_ids_beside_other_headers_are_found_together() -> None:
    blocks = [block("K: v", f"Nats-Msg-Id: {name}", "X: y") for name in ("a", "b", "c d")]
    assert sole_message_ids(blocks) == [b"a", b"b", b"c d"]
    assert sole_message_ids([*blocks, block("K: v")]) is None
    assert sole_message_ids([block("K: v"), block("Nats: no", "NATS-x: no")]) == []


def test_a_header_whose_line_does_not_end_is_read_all_the_same() -> None:
    assert message_id(b"NATS/1.0\r\nNats-Msg-Id: a") == b"a"
    assert header_value(b"NATS/1.0\r\nNats-TTL: 5s", b"Nats-TTL") == b"5s"


LINES = st.sampled_from(
    [
        b"Nats-Expected-Last-Subject-Sequence: 5",
        b"Nats-Expected-Last-Subject-Sequence: 0012",
        b"Nats-Expected-Last-Subject-Sequence:5",
        b"Nats-Expected-Last-Subject-Sequence: +5",
        b"Nats-Expected-Last-Subject-Sequence: 1234567890123456789",
        b"Nats-Expected-Last-Subject-Sequence-Subject: s",
        b"nats-expected-last-subject-sequence: 5",
        b"A: b",
        b"Nats-Msg-Id: x",
        b"\0NATS/1.0",
        b"",
        b"\n",
    ]
)
EXPECTING = st.tuples(
    st.sampled_from([b"NATS/1.0", b"NATS/1.0 ", b"Nats-TTL: 1s", b""]),
    LINES | st.just(b"A: b"),
    LINES,
).map(lambda three: b"\r\n".join([*three, b"", b""]))


@given(st.lists(EXPECTING, min_size=1, max_size=3))
def test_an_expectation_is_alone_if_no_other_header_of_the_server_is_there(
    blocks: list[bytes],
) -> None:
    found = sole_expectations(blocks)
    if found is not None:
        name = b"Nats-Expected-Last-Subject-Sequence"
        assert [read_headers(block) for block in blocks] == [
            {name: read_headers(block)[name]} for block in blocks
        ]
        assert found == [int(read_headers(block)[name]) for block in blocks]


def test_expectations_of_usual_blocks_are_found_together() -> None:
    blocks = [block(f"Nats-Expected-Last-Subject-Sequence: {last}", "A: b") for last in (0, 7)]
    assert sole_expectations(blocks) == [0, 7]
    assert sole_expectations([block("A: b", "Nats-Expected-Last-Subject-Sequence: 3")]) == [3]
    assert sole_expectations([*blocks, block("A: b")]) is None
