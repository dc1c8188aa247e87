"""Consumers from the command line, against both servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import sync
from headrace.cli.consumer import deliver_from
from headrace.cli.shared.errors import Failure

Run = Callable[..., Any]


@pytest.fixture
def stream(js: sync.JetStream) -> sync.Stream:
    stream = js.create_stream(name="A", subjects=["a.*"])
    for number in range(1, 5):
        js.publish(f"a.{number % 2}", b"%d" % number)
    return stream


def test_a_consumer_is_created_from_options(at_server: Run, stream: sync.Stream) -> None:
    words = (
        "--filter a.1,a.2 --wait 2m --backoff 1s,10s --max-deliver 5 --max-pending 7 --deliver 2"
    )
    words += " --description text --sample 50 --inactive-threshold 1h --metadata team=x"
    done = at_server("consumer", "create", "A", "c", *words.split())
    assert done.status == 0, done.err
    config = stream.consumer("c").info().config
    assert config.durable_name == "c"
    assert config.filter_subjects == ("a.1", "a.2")
    assert (config.backoff, config.max_deliver, config.max_ack_pending) == ((1.0, 10.0), 5, 7)
    assert (config.deliver_policy, config.opt_start_seq) == ("by_start_sequence", 2)
    assert (config.description, config.inactive_threshold) == ("text", 3600)
    assert config.metadata["team"] == "x"


def test_a_consumer_moves_by_its_configuration(
    at_server: Run, stream: sync.Stream, tmp_path: Path
) -> None:
    at_server("con", "add", "A", "c", "--ack", "all", "--deliver", "new")
    file = tmp_path / "c.json"
    file.write_text(at_server("consumer", "info", "A", "c", "--json").out)
    assert at_server("consumer", "rm", "A", "c", "--force").status == 0
    assert at_server("consumer", "create", "A", "--config", str(file)).status == 0
    assert stream.consumer("c").info().config.ack_policy == "all"


def test_a_consumer_needs_a_name(at_server: Run, stream: sync.Stream) -> None:
    done = at_server("consumer", "create", "A")
    assert (done.status, "give the consumer a name" in done.err) == (1, True)
    assert list(stream.consumer_names()) == []


def test_consumers_are_listed_and_reported(at_server: Run, stream: sync.Stream) -> None:
    hint = "no consumers; `headrace consumer create A NAME` creates one"
    assert at_server("consumer", "ls", "A").lines == [hint]
    assert at_server("consumer", "report", "A").lines == [hint]
    stream.create_consumer(durable_name="one")
    stream.create_consumer(durable_name="two", filter_subject="a.1")
    assert at_server("consumer", "ls", "A", "-n").lines == ["one", "two"]
    assert len(at_server("consumer", "ls", "A", "--json").told) == 2
    assert [line.split()[0] for line in at_server("consumer", "ls", "A").lines] == [
        "NAME",
        "one",
        "two",
    ]
    report = at_server("consumer", "report", "A", "--json").told
    assert [(row["consumer"], row["num_pending"]) for row in report] == [("one", 4), ("two", 2)]
    assert "50%" in at_server("consumer", "report", "A").lines[2]
    assert "Waiting:               4" in at_server("consumer", "info", "A", "one").out


def test_messages_are_taken_and_acknowledged(at_server: Run, stream: sync.Stream) -> None:
    consumer = stream.create_consumer(durable_name="c")
    lines = at_server("consumer", "next", "A", "c").lines
    assert lines[0].startswith("[#1] Received on 'a.1', stream A, sequence 1, 20")
    taken = at_server("consumer", "next", "A", "c", "--count", "2", "--json").lines
    assert [json.loads(line)["payload"] for line in taken] == ["2", "3"]
    assert at_server("consumer", "next", "A", "c", "--raw", "--nak").lines == ["4"]
    assert at_server("consumer", "next", "A", "c", "--raw", "--no-ack").lines == ["4"]
    info = consumer.info()
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (3, 1)
    done = at_server("consumer", "next", "A", "c", "--wait", "50ms")
    assert (done.status, done.out, done.err) == (1, "", "no message within 0.05 s\n")


def test_editing_shows_what_changes(at_server: Run, stream: sync.Stream) -> None:
    stream.create_consumer(durable_name="c", max_ack_pending=5)
    words = ("consumer", "edit", "A", "c", "--max-pending", "9")
    assert at_server(*words, "--dry-run").lines[1].split() == ["max_ack_pending", "5", "9"]
    assert at_server(*words, answer="n\n").status == 1
    assert at_server(*words, answer="y\n").status == 0
    assert stream.consumer("c").info().config.max_ack_pending == 9


def test_a_consumer_pauses_and_resumes(at_server: Run, stream: sync.Stream) -> None:
    consumer = stream.create_consumer(durable_name="c")
    done = at_server("consumer", "pause", "A", "c", "1h")
    assert done.lines[0].startswith("consumer c of stream A pauses until 20")
    assert consumer.info().paused
    assert "yes, for " in at_server("consumer", "info", "A", "c").out
    assert at_server("consumer", "resume", "A", "c").status == 0
    assert not consumer.info().paused
    assert "is over already" in at_server("consumer", "pause", "A", "c", "2020-01-01").err
    assert "accepted: 30m" in at_server("consumer", "pause", "A", "c", "soon").err


def test_a_pinned_client_is_let_go_of(at_server: Run, stream: sync.Stream) -> None:
    words = ("consumer", "create", "A", "c", "--pinned-groups", "main", "--pinned-ttl", "1m")
    assert at_server(*words).status == 0
    assert at_server("consumer", "next", "A", "c", "--group", "main", "-r").lines == ["1"]
    consumer = stream.consumer("c")
    assert consumer.info().priority_groups[0].pinned_client_id
    done = at_server("consumer", "unpin", "A", "c", "mian")
    assert "no priority group 'mian'; there are: main" in done.err
    assert at_server("consumer", "unpin", "A", "c", "main", answer="y\n").status == 0
    assert not consumer.info().priority_groups[0].pinned_client_id


def test_a_consumer_is_reset(at_server: Run, stream: sync.Stream) -> None:
    stream.create_consumer(durable_name="c")
    at_server("consumer", "next", "A", "c", "--count", "4")
    done = at_server("consumer", "reset", "A", "c", "2", "--force")
    assert done.lines == ["consumer c delivers from sequence 2 on; 3 messages left"]
    assert at_server("consumer", "next", "A", "c", "-r").lines == ["2"]
    done = at_server("consumer", "reset", "A", "c", "3", "--dry-run")
    assert "to sequence 3" in done.out
    done = at_server("consumer", "reset", "A", "c", "--dry-run")
    assert done.out.startswith("would reset consumer c of stream A to the first message not")


def test_a_misspelt_consumer_is_met_with_what_was_meant(
    at_server: Run, stream: sync.Stream
) -> None:
    done = at_server("consumer", "info", "A", "billing")
    assert done.err.splitlines() == [
        "headrace: there is no consumer 'billing' of stream 'A', nor any other",
        "  headrace consumer create A billing    creates it",
    ]
    stream.create_consumer(durable_name="billing")
    done = at_server("consumer", "next", "A", "biling")
    assert "did you mean 'billing'?" in done.err


def test_a_push_consumer_is_not_pulled_from(at_server: Run, stream: sync.Stream) -> None:
    assert at_server("consumer", "create", "A", "c", "--target", "out").status == 0
    done = at_server("consumer", "next", "A", "c")
    assert (done.status, "headrace sub out" in done.err) == (1, True)


def test_where_to_begin() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert deliver_from("subject", now) == {"deliver_policy": "last_per_subject"}
    begin = deliver_from("1h", now)
    assert begin == {"deliver_policy": "by_start_time", "opt_start_time": "2026-01-01T11:00:00Z"}
    with pytest.raises(Failure, match="accepted are all, new"):
        deliver_from("someday", now)


def test_sub_shows_what_comes_and_acknowledges(at_server: Run, stream: sync.Stream) -> None:
    assert at_server("consumer", "create", "A", "c", "--defaults").status == 0
    done = at_server("consumer", "sub", "A", "c", "--count", "3", "--raw")
    assert (done.status, done.out) == (0, "1\n2\n3\n")
    assert "Ctrl-C ends it" in done.err
    info = stream.consumer("c").info()
    assert (info.delivered.stream_seq, info.ack_floor.stream_seq) == (3, 3)
    assert (
        at_server("consumer", "sub", "A", "c", "--no-ack", "--wait", "0.2s", "--raw").out == "4\n"
    )
    assert stream.consumer("c").info().num_ack_pending == 1


def test_sub_listens_to_what_is_pushed(at_server: Run, stream: sync.Stream) -> None:
    assert at_server("consumer", "create", "A", "p", "--target", "to.us").status == 0
    told = at_server("consumer", "sub", "A", "p", "--count", "4", "--wait", "5s", "--json")
    assert [json.loads(line)["payload"] for line in told.lines] == ["1", "2", "3", "4"]
    assert stream.consumer("p").info().ack_floor.stream_seq == 4


def test_a_consumer_is_copied_with_its_settings(at_server: Run, stream: sync.Stream) -> None:
    at_server("consumer", "create", "A", "c", "--filter", "a.1", "--max-deliver", "5")
    at_server("consumer", "next", "A", "c")
    assert at_server("consumer", "copy", "A", "c", "d", "--max-deliver", "7").status == 0
    info = stream.consumer("d").info()
    assert (info.name, info.config.durable_name, info.delivered.stream_seq) == ("d", "d", 0)
    assert (info.config.filter_subject, info.config.max_deliver) == ("a.1", 7)
    assert "cannot be copied to itself" in at_server("consumer", "copy", "A", "c", "c").err
