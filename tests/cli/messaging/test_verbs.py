"""pub, sub, request and reply against both servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import sync

Run = Callable[..., Any]


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own; it has said that it listens when this begins."""
    command = [sys.executable, "-m", "headrace", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "Ctrl-C ends it" in process.stderr.readline()
        yield process
        process.kill()


def test_what_is_published_is_shown_by_who_listens(
    at_server: Run, either_server: peers.ServerProcess
) -> None:
    with running("sub", "a.>", "b", "--count", "3", "-s", either_server.url) as process:
        done = at_server("pub", "a.1", "order {{Count}}", "--count", "2", "-H", "Customer:ann")
        assert done.lines == ["published 2 messages to a.1"]
        assert at_server("pub", "b", answer="from standard input").status == 0
        out, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert out == (
        "[#1] Received on 'a.1'\nCustomer: ann\n\norder 1\n\n"
        "[#2] Received on 'a.1'\nCustomer: ann\n\norder 2\n\n"
        "[#3] Received on 'b'\n\nfrom standard input\n\n"
    )


def test_a_stream_confirms_and_is_read_from_anywhere(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["orders.>"])
    done = at_server("pub", "orders.1", "one", "--jetstream", "--msg-id", "a")
    assert done.lines == ["stored 1 message in stream ORDERS, sequence 1"]
    done = at_server("pub", "orders.1", "one", "-J", "--msg-id", "a")
    assert done.lines == ["stored 1 message in stream ORDERS, sequence 1, 1 of them there already"]
    at_server("pub", "orders.{{Count}}", "x")
    at_server("pub", "orders.2", "two", "-J")
    told = at_server("sub", "orders.>", "--all", "--count", "2", "--json")
    assert [json.loads(line)["payload"] for line in told.lines] == ["one", "x"]
    lines = at_server("sub", "--stream", "ORDERS", "--last", "--count", "1", "--raw").lines
    assert lines == ["two"]
    lines = at_server("sub", "orders.2", "--start-sequence", "1", "--wait", "200ms", "-r").lines
    assert lines == ["two"]
    lines = at_server("sub", "--stream", "ORDERS", "--since", "1h", "--count", "1").lines
    assert lines[0].startswith("[#1] Received on 'orders.1', stream ORDERS, sequence 1, 20")


def test_reading_ends_at_the_end_or_goes_on_with_a_consumer(
    at_server: Run, js: sync.JetStream
) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    ends = ("sub", "--stream", "ORDERS", "--terminate-at-end", "--raw")
    assert at_server(*ends).lines == []
    for number in range(3):
        js.publish("orders.1", b"%d" % number)
    assert at_server(*ends).lines == ["0", "1", "2"]
    at_server("consumer", "create", "ORDERS", "c")
    words = ("sub", "--stream", "ORDERS", "--durable", "c", "--count", "2", "--raw")
    assert at_server(*words).lines == ["0", "1"]
    assert stream.consumer("c").info().ack_floor.stream_seq == 2
    done = at_server("sub", "orders.1", *words[1:])
    assert (done.status, "--durable goes with --stream" in done.err) == (1, True)


def test_reading_a_stream_leaves_no_consumer(at_server: Run, js: sync.JetStream) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    js.publish("orders.1", b"1")
    assert at_server("sub", "orders.>", "--all", "--count", "1").status == 0
    assert list(stream.consumer_names()) == []


def test_publishing_where_no_stream_listens_is_an_error(at_server: Run) -> None:
    done = at_server("pub", "nobody", "x", "--jetstream", "--timeout", "1s")
    assert done.status == 1
    assert "headrace stream create NAME --subjects 'nobody'    stores it" in done.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("sub",), "give a subject"),
        (("sub", "a", "--all", "--new"), "give one place to begin"),
        (("sub", "a", "--all"), "no stream has it; --stream says which one"),
        (("sub", "a", "--stream", "A", "--all"), "no stream 'A', nor any other"),
        (("request", "nobody", "x"), "nobody answers on 'nobody'"),
        (("request", "nobody", "x", "--replies", "0"), "nobody answers on 'nobody'"),
        (("reply", "a", "body", "--echo"), "give one kind of answer"),
        (("pub", "a b", "x"), "a b"),
    ],
)
def test_what_cannot_be_is_said(at_server: Run, words: tuple[str, ...], text: str) -> None:
    done = at_server(*words)
    assert done.status in (1, 2)
    assert text in done.err
    assert "Traceback" not in done.err


def test_requests_are_answered(at_server: Run, either_server: peers.ServerProcess) -> None:
    url = either_server.url
    with running("reply", "time", "{{Request}} {{Count}}", "--count", "3", "-s", url) as process:
        lines = at_server("request", "time", "question").lines
        assert lines[0].startswith("Received after ")
        assert lines[2] == "question 1"
        told = at_server("request", "time", "q", "--json").told
        assert (told["payload"], told["took_ms"] > 0) == ("q 2", True)
        lines = at_server("request", "time", "q", "--replies", "0", "--raw").lines
        assert lines == ["q 3"]
        out, _ = process.communicate(timeout=10)
    assert "[#3] Received on 'time' with reply _INBOX." in out


def test_a_command_answers(at_server: Run, either_server: peers.ServerProcess) -> None:
    command = (
        f"{sys.executable} -c 'import os; print(os.environ[\"NATS_REQUEST_SUBJECT\"], input())'"
    )
    with running("reply", "run.*", "--command", command, "-s", either_server.url):
        assert at_server("request", "run.it", "now", "--raw").lines == ["run.it now", ""]


def test_messages_are_written_to_files_one_each(
    at_server: Run, js: sync.JetStream, tmp_path: Path
) -> None:
    js.create_stream(name="A", subjects=["a"])
    js.publish("a", b"one", headers={"Kind": "x"})
    js.publish("a", b"\xff")
    words = ("sub", "--stream", "A", "--all", "--count", "2")
    done = at_server(*words, "--dump", str(tmp_path / "new"))
    assert (done.status, done.out) == (0, "")
    first, second = (json.loads((tmp_path / "new" / f"{n}.json").read_text()) for n in (1, 2))
    assert (first["payload"], first["headers"], first["seq"]) == ("one", {"Kind": ["x"]}, 1)
    assert (second["subject"], second["payload_base64"]) == ("a", "/w==")
    again = at_server(*words, "--dump", str(tmp_path / "new"))
    assert (again.status, "1.json: File exists" in again.err) == (1, True)
    done = at_server(*words, "--dump", "-")
    one, two, rest = done.out.split("\0")
    assert (json.loads(one), json.loads(two), rest) == (first, second, "")
