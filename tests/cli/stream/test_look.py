"""view, get, report, subjects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace import sync
from headrace.api.streams import StreamSource

Run = Callable[..., Any]


@pytest.fixture(params=[True, False], ids=["direct", "not direct"])
def stream(request: pytest.FixtureRequest, js: sync.JetStream) -> sync.Stream:
    stream = js.create_stream(name="A", subjects=["a.*"], allow_direct=request.param)
    for number in range(1, 7):
        js.publish(f"a.{number % 2}", b"message %d" % number, headers={"Number": str(number)})
    stream.delete_message(2)
    return stream


def test_messages_are_shown_a_page_at_a_time(at_server: Run, stream: sync.Stream) -> None:
    done = at_server("stream", "view", "A", "2")
    lines = done.lines
    assert lines[0].startswith("[1] a.1 at 20")
    assert lines[1:4] == ["Number: 1", "", "message 1"]
    assert done.err == "there is more: --id 4, or --all\n"
    assert at_server("stream", "view", "A", "2", "--id", "4", "--raw").lines == [
        "message 4",
        "message 5",
    ]
    shown = at_server("stream", "view", "A", "1", "--all", "--json", "--subject", "a.1").lines
    assert [json.loads(line)["seq"] for line in shown] == [1, 3, 5]
    assert at_server("stream", "view", "A", "--since", "1h", "--raw").lines[0] == "message 1"
    done = at_server("stream", "view", "A", "--subject", "b")
    assert (done.status, done.out, done.err) == (0, "", "stream A has no such message\n")
    stream.purge()
    assert at_server("stream", "view", "A").err == "stream A has no such message\n"


def test_markers_of_sinks_are_shown_when_they_are_asked_for(
    at_server: Run, stream: sync.Stream, js: sync.JetStream
) -> None:
    js.update_stream(name="A", subjects=["a.*", "_sink.A.>"])
    js.publish("_sink.A.s.0", b"{}", headers={"Headrace-Marker": "rows"})
    js.publish("a.last", b"message 7")
    done = at_server("stream", "view", "A", "--id", "6", "--raw")
    assert done.lines == ["message 6", "message 7"]
    assert done.err == "1 marker of Spark's sinks left out: --markers\n"
    done = at_server("stream", "view", "A", "--id", "6", "--raw", "--markers")
    assert (done.lines, done.err) == (["message 6", "{}", "message 7"], "")


def test_one_message_is_shown(at_server: Run, stream: sync.Stream) -> None:
    told = at_server("stream", "get", "A", "3", "--json").told
    assert (told["seq"], told["payload"], told["headers"]) == (3, "message 3", {"Number": ["3"]})
    assert at_server("stream", "get", "A", "-S", "a.0", "--raw").out == "message 6"
    done = at_server("stream", "get", "A", "2")
    assert (done.status, "has no message 2; it has 5, from 1 to 6" in done.err) == (1, True)
    assert "no message of subject 'b'" in at_server("stream", "get", "A", "-S", "b").err
    assert "give one of" in at_server("stream", "get", "A").err


def test_the_report_says_who_holds_what(at_server: Run, js: sync.JetStream) -> None:
    assert at_server("stream", "report").lines[0].startswith("no streams; ")
    js.create_stream(name="BIG", subjects=["b"])
    js.create_stream(name="SMALL", subjects=["s"])
    js.publish("b", b"x" * 1000)
    js.create_stream(name="COPY", sources=[StreamSource(name="SMALL")])
    rows = at_server("stream", "report", "--json").told
    assert rows[0]["stream"] == "BIG"
    assert rows[0]["messages"] == 1
    assert at_server("stream", "report").lines[-1].split()[:3] == ["COPY", "source", "SMALL"]


def test_subjects_are_counted(at_server: Run, stream: sync.Stream) -> None:
    assert [line.split() for line in at_server("stream", "subjects", "A").lines[1:]] == [
        ["a.0", "2"],
        ["a.1", "3"],
    ]
    assert at_server("stream", "subjects", "A", "a.1", "--json").told == {"a.1": 3}
