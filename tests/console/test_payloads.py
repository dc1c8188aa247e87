from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console import payloads


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"", "empty"),
        (b'{"a": 1}', "json"),
        (b"  [1, 2]", "json"),
        (b"{not json", "text"),
        ("Grüße\n".encode(), "text"),
        (b"\x00\x01\x02", "binary"),
        (b"\xff\xfe", "binary"),
        (b"a" * 10 + b"\x00" * 10, "binary"),
    ],
)
def test_a_payload_is_taken_for_what_it_looks_like(payload: bytes, kind: str) -> None:
    assert payloads.kind_of(payload) == kind


def test_a_long_text_cut_within_a_character_is_still_text() -> None:
    payload = b"x" + "é".encode() * payloads.SHOWN_BYTES
    assert payloads.kind_of(payload) == "text"
    shown = payloads.shown(payload)
    assert shown["cut"]
    assert shown["bytes"] == len(payload)


def test_numbers_keep_their_digits() -> None:
    assert "12345678901234567890" in payloads.shown(b'{"n":12345678901234567890}')["pretty"]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (rb'{"city":"\u00c4nger\u00f6"}', '"Ängerö"'),
        (rb'["\ud83d\ude00"]', '"😀"'),
        (rb'["C:\\u00c4 \\\u00c4"]', r'"C:\\u00c4 \\Ä"'),
        (rb'["\u0022 \u005c \u0000 \u202e \n"]', r'"\u0022 \u005c \u0000 \u202e \n"'),
    ],
)
def test_letters_that_json_escapes_are_shown_as_themselves(payload: bytes, said: str) -> None:
    pretty = payloads.shown(payload)["pretty"]
    assert said in pretty
    assert json.loads(pretty) == json.loads(payload)


def test_json_that_indentation_would_blow_up_stays_a_line() -> None:
    deep = b"[" * 300 + b",".join([b"1"] * 60_000) + b"]" * 300
    shown = payloads.shown(deep)
    assert (shown["kind"], shown["pretty"]) == ("text", "")
    assert shown["text"] == deep.decode()
    flat = b"[" + b",".join([b'{"a":"[[[[\\"[["}'] * 10_000) + b"]"
    assert payloads._depth(flat) == 2
    assert payloads.shown(flat)["kind"] == "json"
    assert payloads.shown(b"[" * 40 + b"]" * 40)["pretty"].count("\n") > 40


def test_hexadecimal_has_offset_bytes_and_characters() -> None:
    lines = payloads.shown(bytes(range(65, 85)))["hex"].splitlines()
    assert lines[0] == "00000000  41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP"
    assert lines[1].startswith("00000010  51 52 53 54 ")


@given(st.one_of(st.binary(max_size=400), st.text(max_size=200).map(str.encode)))
def test_whatever_comes_is_shown_as_text_that_json_can_carry(payload: bytes) -> None:
    shown = payloads.shown(payload)
    json.dumps(shown).encode()
    line = payloads.preview(payload)
    assert line.isprintable()
    assert len(line) <= payloads.PREVIEW_CHARACTERS + 2
