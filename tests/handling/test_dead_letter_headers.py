"""What a dead letter says, of a handler as of Spark, and how it is read."""

from __future__ import annotations

from typing import NamedTuple

from headrace.handling.dead_letter_headers import (
    ROW,
    SEQUENCE,
    SINK,
    STREAM,
    SUBJECT,
    TRUNCATED,
    letter_block,
    letter_of,
)
from headrace.wire.headers import Headers, encode_headers, parse_headers


class Stored(NamedTuple):
    headers: Headers


ABOUT = [(STREAM, "S"), (SEQUENCE, "7"), (SUBJECT, "s.a")]


def test_a_letter_of_a_source_has_the_message_s_own_headers_again() -> None:
    own = encode_headers([("Colour", "blue"), ("Nats-Msg-Id", "1"), ("Colour", "red")])
    block = letter_block("id", ABOUT, "the subject is\nnot UTF-8", own)
    assert parse_headers(block)["Nats-Msg-Id"] == "id"
    letter = letter_of(Stored(parse_headers(block)))
    assert letter is not None
    assert (letter.stream, letter.sequence, letter.subject) == ("S", 7, "s.a")
    assert letter.reason == "the subject is not UTF-8"
    assert letter.error == "bad message or row"
    assert letter.headers == {"Colour": ["blue", "red"]}


def test_headers_that_cannot_be_read_are_left_out_of_what_is_sent_again() -> None:
    for own in (b"NATS/1.0\r\nno colon\r\n\r\n", b"\xff"):
        letter = letter_of(Stored(parse_headers(letter_block("id", ABOUT, "bad", own))))
        assert letter is not None
        assert letter.headers == {}
    block = encode_headers([*ABOUT, ("Headrace-Failure", "bad"), ("Headrace-Headers", "no base64")])
    letter = letter_of(Stored(parse_headers(block)))
    assert letter is not None
    assert letter.headers == {}


def test_a_letter_of_a_sink_names_it_and_is_not_sent_again_by_itself_where_it_is_cut() -> None:
    about = [(SINK, "query:4:0"), (ROW, "1"), (SUBJECT, "s.a")]
    letter = letter_of(Stored(parse_headers(letter_block("id", about, "too large"))))
    assert letter is not None
    assert (letter.by, letter.subject, letter.headers) == ("query:4:0", "s.a", {})
    cut = letter_block("id", [*about, (TRUNCATED, "9")], "too large")
    letter = letter_of(Stored(parse_headers(cut)))
    assert letter is not None
    assert letter.subject == ""
