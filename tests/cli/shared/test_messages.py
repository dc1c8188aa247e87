from __future__ import annotations

import re
from typing import cast

import pytest

from headrace.cli.shared.errors import Failure
from headrace.cli.shared.messages import (
    Arrivals,
    document,
    fill_in,
    headers_of,
    payload_text,
    text,
    time_of,
)
from headrace.client import Message
from headrace.wire.headers import Headers


def test_a_message_for_programs_is_text_or_base64() -> None:
    headers = Headers([("A", "1"), ("A", "2")])
    assert document("s", b"\xc3\xa4", headers, seq=1, reply="") == {
        "subject": "s",
        "seq": 1,
        "headers": {"A": ["1", "2"]},
        "payload": "ä",
    }
    assert document("s", b"\xff", Headers())["payload_base64"] == "/w=="


def test_a_message_for_people_does_not_command_the_terminal() -> None:
    shown = text("[1] s", b"a\r\nb\x1b[2J", Headers([("X", "\x1b]0;title\x07")]))
    assert shown == "[1] s\nX: \\x1b]0;title\\x07\n\na\nb\\x1b[2J\n"
    assert payload_text(b"\xff\x00") == "0xff00"
    assert payload_text(b"\xff" * 300).endswith(" … (300 bytes)")


def test_headers_are_typed_with_a_colon() -> None:
    assert headers_of(["A: 1", "B:x:y", "A:2"]) == {"A": ["1", "2"], "B": ["x:y"]}
    with pytest.raises(Failure, match="accepted is NAME:VALUE"):
        headers_of(["A"])


def test_a_template_is_filled_in() -> None:
    assert fill_in("{{Count}} {{.Count}} {{ Cnt }}", 7) == "7 7 7"
    assert fill_in("{{Request}}!", request="hi") == "hi!"
    assert re.fullmatch("[a-z0-9]{3,5}", fill_in("{{Random 3 5}}"))
    assert fill_in("{{Unknown}} {x} {{Count 3}}") == "{{Unknown}} {x} {{Count 3}}"
    assert len(fill_in("{{ID}}")) == 22


def test_a_timestamp_is_shown_to_the_millisecond() -> None:
    assert time_of(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123Z"


async def test_what_comes_beyond_the_limit_is_dropped_and_counted() -> None:
    arrivals = Arrivals(2)
    messages = [cast(Message, object()) for _ in range(5)]
    for message in messages:
        arrivals.put(message)
    assert [await anext(arrivals), await anext(arrivals)] == messages[:2]
    assert arrivals.dropped == 3
