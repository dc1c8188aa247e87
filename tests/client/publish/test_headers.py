from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.client.message import header_block
from headrace.client.publish.headers import Blocks, header_text, with_options, with_pairs
from headrace.errors import ConfigurationError, ProtocolError
from headrace.wire.headers import add_header, parse_headers


def blocks(*, deduplicate: bool = True) -> Blocks:
    return Blocks(deduplicate=deduplicate, prefix=b"me", trace=None)


def traced(block: bytes) -> bytes:
    return add_header(block, b"trace", b"t")


@pytest.mark.parametrize("number", [0, 7, 10**19])
def test_what_surrounds_the_number_makes_the_block(number: int) -> None:
    made = blocks()
    block = b"%b%d%b" % (made.start, number, made.end)
    assert block == made.make(number, None, "")
    assert list(parse_headers(block).items()) == [("Nats-Msg-Id", f"me.{number}")]
    assert len(block) == made.extra + len(str(number)) <= made.extra_max


def test_an_id_the_caller_gives_is_taken_instead() -> None:
    for block in (
        blocks().make(1, None, "mine"),
        blocks(deduplicate=False).make(1, None, "mine"),
        blocks().make(1, {"Nats-Msg-Id": "mine"}, ""),
    ):
        assert list(parse_headers(block).items()) == [("Nats-Msg-Id", "mine")]


def test_an_id_follows_the_headers_of_the_caller() -> None:
    pairs = list(parse_headers(blocks().make(1, {"A": "b"}, "")).items())
    assert pairs == [("A", "b"), ("Nats-Msg-Id", "me.1")]


def test_an_id_with_a_line_break_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"msg_id.*a line break: accepted is text on one line, as"
    ):
        blocks().make(1, None, "a\r\nb")


def test_a_trace_is_added_to_every_message_and_makes_blocks_unlike() -> None:
    made = Blocks(deduplicate=True, prefix=b"me", trace=traced)
    assert made.always
    assert (made.start, made.end, made.extra_max) == (b"", b"", 0)
    pairs = list(parse_headers(made.make(3, None, "")).items())
    assert pairs == [("Nats-Msg-Id", "me.3"), ("trace", "t")]


def test_without_a_trace_to_tell_of_there_is_no_block() -> None:
    made = Blocks(deduplicate=False, prefix=b"me", trace=lambda block: block)
    assert made.always
    assert made.make(1, None, "") == b""


@pytest.mark.parametrize("value", ["1 validation error\n  field required", "a\rb", "\ud800"])
def test_a_header_of_several_lines_is_refused_wherever_it_is_given(value: str) -> None:
    gates: list[Callable[[], object]] = [
        lambda: header_block({"Error": value}),
        lambda: with_options({"Error": value}, {}),
        lambda: with_options(None, {"msg_id": value}),
        lambda: with_pairs({"Error": value}),
        lambda: header_text("msg_id", value),
    ]
    for gate in gates:
        with pytest.raises((ConfigurationError, ProtocolError), match="text on one line") as caught:
            gate()
        assert ("' '.join(text.split())" in str(caught.value)) == ("\ud800" not in value)
