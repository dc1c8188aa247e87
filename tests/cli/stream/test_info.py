from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import sync

Run = Callable[..., Any]


def test_no_streams_is_met_with_how_to_create_one(at_server: Run) -> None:
    done = at_server("stream", "ls")
    assert done.lines == [
        "no streams; `headrace stream create NAME --subjects 'name.>'` creates one"
    ]


def test_streams_are_listed_for_people_and_programs(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["orders.>"], description="what is ordered")
    js.publish("orders.1", b"x" * 100)
    js.create_key_value("settings")
    lines = at_server("stream", "ls").lines
    assert lines[0].split() == [
        "NAME",
        "DESCRIPTION",
        "CREATED",
        "MESSAGES",
        "SIZE",
        "LAST",
        "MESSAGE",
    ]
    assert lines[1].split()[:4] == ["ORDERS", "what", "is", "ordered"]
    assert len(lines) == 2
    assert at_server("stream", "ls", "-n", "--all").lines == ["KV_settings", "ORDERS"]
    assert [each["config"]["name"] for each in at_server("str", "list", "--json").told] == [
        "ORDERS"
    ]
    assert at_server("stream", "ls", "--subject", "nobody.*", "--names").lines == []


def test_info_shows_configuration_and_state(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["orders.>"], max_age=3600, max_bytes=1 << 20)
    js.publish("orders.1", b"1")
    text = at_server("stream", "info", "ORDERS").out
    assert "Maximum age:          1h" in text
    assert "Maximum bytes:        1.0 MiB" in text
    assert "Messages:             1" in text
    told = at_server("stream", "info", "ORDERS", "--json", "--subjects", ">").told
    assert told["state"]["subjects"] == {"orders.1": 1}
    assert told["config"]["max_age"] == 3_600_000_000_000


def test_a_stream_that_is_not_there_is_told_with_the_next_step(at_server: Run) -> None:
    done = at_server("stream", "info", "ORDERS")
    assert done.status == 1
    assert "there is no stream 'ORDERS', nor any other" in done.err
    assert "headrace stream create ORDERS    creates it" in done.err
