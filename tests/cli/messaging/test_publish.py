"""pub: lines of standard input, batches, schedules, and what does not go together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import peers
from headrace import sync
from headrace.cli.messaging.publish import Plan
from headrace.cli.shared.errors import Failure

Run = Callable[..., Any]


def _piped(
    server: peers.ServerProcess, given: bytes, *words: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", "pub", *words, "-s", server.url],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
    )


def _stored(stream: sync.Stream) -> list[tuple[str, bytes]]:
    last = stream.info().state.last_seq
    found = [stream.get_message(sequence) for sequence in range(1, last + 1)]
    return [(each.subject, each.payload) for each in found]


def test_each_line_is_a_message(either_server: peers.ServerProcess, js: sync.JetStream) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    done = _piped(either_server, b"one\r\n\n{{Count}}\nlast \xff", "orders.new", "--lines", "-J")
    assert done.stdout == b"stored 4 messages in stream ORDERS, sequence 4\n", done.stderr
    wanted = [b"one", b"", b"{{Count}}", b"last \xff"]  # what is read is not filled in
    assert _stored(stream) == [("orders.new", payload) for payload in wanted]


def test_lines_are_filled_into_subject_body_and_id(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    words = (
        "orders.{{Line}}",
        "{{Count}}: {{Line}}",
        "--lines",
        "-J",
        "--msg-id",
        "{{Line}}",
        "-j",
    )
    done = _piped(either_server, b"ann\nbob\nann\n", *words)
    assert [each["duplicate"] for each in json.loads(done.stdout)] == [False, False, True]
    assert _stored(stream) == [("orders.ann", b"1: ann"), ("orders.bob", b"2: bob")]
    assert _piped(either_server, b"", "orders.x", "--lines").stdout == b"nothing to publish\n"


def test_lines_are_published_as_they_come(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    with (
        sync.connect(either_server.url) as nc,
        nc.subscribe("lines") as subscription,
        subprocess.Popen(
            [sys.executable, "-m", "headrace", "pub", "lines", "--lines", "-s", either_server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        nc.flush()
        assert process.stdin is not None and process.stdout is not None
        for line in (b"first", b"second"):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            assert subscription.next(30.0).payload == line
        process.stdin.close()
        assert process.stdout.read() == b"published 2 messages to lines\n"
        assert process.wait(30) == 0


def test_a_failure_amid_the_lines_ends_it_in_words(either_server: peers.ServerProcess) -> None:
    """The thread that reads has more to hand over than anybody takes."""
    done = _piped(either_server, b"x" * 70_000 + b"\n" + b"line\n" * 1_000_000, "a..b", "--lines")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr, done.stderr


def test_a_failure_amid_the_lines_says_how_many_are_stored(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"], max_msgs=2, discard="new")
    done = _piped(either_server, b"1\n2\n3\n4\n", "orders.new", "--lines", "-J")
    assert done.returncode == 1
    assert b"stored 2 messages before that" in done.stderr
    assert b"Traceback" not in done.stderr
    assert [payload for _, payload in _stored(stream)] == [b"1", b"2"]


def test_a_line_of_many_reads_is_one_message(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    long = b"y" * 300_000
    done = _piped(either_server, long + b"\nshort\n" + long, "orders.new", "--lines", "-J")
    assert done.returncode == 0, done.stderr
    assert [payload for _, payload in _stored(stream)] == [long, b"short", long]


def test_a_batch_is_stored_whole_or_not_at_all(at_server: Run, js: sync.JetStream) -> None:
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"], allow_atomic=True)
    done = at_server("pub", "orders.{{Count}}", "no {{Count}}", "--count", "3", "--atomic")
    assert done.lines == ["stored 3 messages together in stream ORDERS, sequences 1 to 3"]
    assert _stored(stream) == [(f"orders.{n}", b"no %d" % n) for n in (1, 2, 3)]
    over = at_server("pub", "orders.x", "x", "--count", "1001", "--atomic")
    assert over.status == 1 and "nothing was stored" in over.err
    assert "--allow-atomic" not in over.err
    assert stream.info().state.messages == 3
    js.create_stream(name="PLAIN", subjects=["plain"])
    refused = at_server("pub", "plain", "x", "--count", "2", "--atomic")
    assert refused.status == 1 and "headrace stream edit STREAM --allow-atomic" in refused.err
    assert js.stream("PLAIN").info().state.messages == 0


def test_a_stream_publishes_it_later(at_server: Run, js: sync.JetStream) -> None:
    stream = js.create_stream(
        name="LATER",
        subjects=["later.>"],
        allow_msg_schedules=True,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
    )
    due = stream.create_consumer(durable_name="due", filter_subject="later.due")
    done = at_server("pub", "later.plan", "wake up", "--target", "later.due", "--in", "1s")
    assert done.status == 0, done.err
    assert "stream LATER publishes it to later.due at 2" in done.out
    (came,) = due.fetch(1, max_wait=30.0)
    assert came.payload == b"wake up"
    daily = at_server(
        "pub", "later.daily", "report", "--target", "later.report", "--cron", "0 0 6 * * *",
        "--time-zone", "Europe/Berlin", "--json",
    )  # fmt: skip
    assert daily.told["target"] == "later.report"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a", "x", "--lines", "--count", "2"), "--lines or --count"),
        (("a", "x", "--in", "1m"), "--in needs --target"),
        (("a", "x", "--target", "b"), "needs one of --at, --in, --every and --cron"),
        (("a", "x", "--target", "b", "--in", "1m", "--every", "2m"), "needs one of"),
        (
            ("a", "x", "--target", "b", "--in", "1m", "--time-zone", "UTC"),
            "--time-zone is of --cron",
        ),
        (("a", "x", "--target", "b", "--at", "soon"), "'soon' is not a time; accepted"),
        (("a", "x", "--target", "b", "--in", "1m", "--atomic"), "a schedule is one message"),
        (("a", "x", "--atomic", "--reply", "b"), "--reply does not go with"),
        (("a", "x", "--msg-id", "1"), "--msg-id needs --jetstream"),
    ],
)
def test_what_does_not_go_together_is_said(
    at_server: Run, words: tuple[str, ...], said: str
) -> None:
    done = at_server("pub", *words)
    assert done.status != 0 and said in " ".join(done.err.split())


def test_a_plan_says_when() -> None:
    now = datetime(2026, 11, 22, 10, tzinfo=UTC)

    def plan(
        at: datetime | None = None, within: float = 0, every: float = 0, cron: str = ""
    ) -> str:
        found = Plan.of("t", at, within, every, cron, "Europe/Berlin" if cron else "", now)
        assert found is not None
        return found.when()

    assert plan(within=90) == "at 2026-11-22T10:01:30Z"
    assert plan(at=now) == "at 2026-11-22T10:00:00Z"
    assert plan(every=5) == "every 5 s"
    assert plan(cron="@daily") == "by '@daily' in Europe/Berlin"
    assert Plan.of("", None, 0, 0, "", "") is None
    with pytest.raises(Failure, match="--time-zone needs --target"):
        Plan.of("", None, 0, 0, "", "UTC")
