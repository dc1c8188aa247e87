"""create, edit, rm, purge, rmm, seal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import sync
from headrace.api.base import to_wire
from headrace.errors import StreamExistsError
from waiting import until_here

Run = Callable[..., Any]


def test_a_stream_is_created_from_options(at_server: Run, js: sync.JetStream) -> None:
    words = "--subjects a.>,b --max-age 7d --max-bytes 1GB --retention work --storage memory"
    words += (
        " --dupe-window 1m --max-msgs 5 --discard new --metadata team=a --deny-delete --source S"
    )
    done = at_server("stream", "create", "A", *words.split())
    assert done.status == 0, done.err
    config = js.stream("A").info().config
    assert config.subjects == ("a.>", "b")
    assert (config.max_age, config.max_bytes, config.max_msgs) == (604_800, 1 << 30, 5)
    assert (config.retention, config.storage, config.discard) == ("workqueue", "memory", "new")
    assert (config.duplicate_window, config.deny_delete, config.allow_direct) == (60, True, False)
    assert config.metadata["team"] == "a"
    assert config.sources[0].name == "S"


def test_the_second_run_changes_nothing_and_another_configuration_is_refused(
    at_server: Run,
) -> None:
    assert at_server("stream", "add", "A", "--subjects", "a").status == 0
    assert at_server("stream", "add", "A", "--subjects", "a").status == 0
    done = at_server("stream", "add", "A", "--subjects", "b")
    assert done.status == 1
    assert "stream A is there, with other settings: subjects is a, not b\n" in done.err
    assert "headrace stream edit A " in done.err
    done = at_server("stream", "add", "B", "--subjects", "a")
    assert (done.status, "headrace stream ls --subject" in done.err) == (1, True)


def test_what_is_not_named_may_be_as_it_is(
    at_server: Run, js: sync.JetStream, tmp_path: Path
) -> None:
    js.create_stream(name="A", subjects=["a.>"], max_msgs=5, metadata={"team": "web"})
    done = at_server("stream", "create", "A", "--subjects", "a.>")
    assert (done.status, done.err) == (0, "stream A is there already, with these settings\n")
    done = at_server("stream", "create", "A", "--max-msgs", "6", "--max-age", "1h")
    assert "other settings: max_msgs is 5, not 6; max_age is 0.0, not 3600.0\n" in done.err
    file = tmp_path / "a.json"
    file.write_text('{"name": "A", "subjects": ["a.>"]}')
    done = at_server("stream", "create", "--config", str(file))
    assert "max_msgs is 5, not -1" in done.err


def test_a_stream_moves_by_its_configuration(
    at_server: Run, js: sync.JetStream, tmp_path: Path
) -> None:
    js.create_stream(name="A", subjects=["a.*"], max_age=60)
    file = tmp_path / "a.json"
    file.write_text(at_server("stream", "info", "A", "--json").out)
    assert at_server("stream", "rm", "A", "-f").status == 0
    assert at_server("stream", "create", "--config", str(file)).status == 0
    assert js.stream("A").info().config.max_age == 60
    file.write_text('{"name": "A", "max_agee": 1}')
    done = at_server("stream", "create", "--config", str(file))
    assert (done.status, "unknown field" in done.err) == (1, True)
    done = at_server("stream", "create", "--config", str(tmp_path / "none"))
    assert "No such file" in done.err


def test_editing_shows_what_changes_and_asks(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="A", subjects=["a"], description="old")
    words = ("stream", "edit", "A", "--max-msgs", "10", "--description", "new")
    done = at_server(*words, "--dry-run")
    assert [line.split() for line in done.lines] == [
        ["SETTING", "NOW", "THEN"],
        ["description", "old", "new"],
        ["max_msgs", "-1", "10"],
        ["would", "change", "stream", "A", "so"],
    ]
    assert (at_server(*words, answer="n\n").status, js.stream("A").info().config.max_msgs) == (
        1,
        -1,
    )
    assert at_server(*words, answer="y\n").status == 0
    config = js.stream("A").info().config
    assert (config.max_msgs, config.description, config.subjects) == (10, "new", ("a",))
    done = at_server(*words, "--force")
    assert (done.status, "nothing to change" in done.err) == (1, True)


def filled(js: sync.JetStream, **config: Any) -> None:
    js.create_stream(name="A", subjects=["a.*"], **config)
    for number in range(20):
        js.publish(f"a.{number % 4}", b"x" * 50)


@pytest.mark.parametrize(
    ("options", "told", "left"),
    [
        ("--max-msgs 5", "which removes 15 of 20 messages", 5),
        ("--max-msgs 50", "", 20),
        ("--max-bytes 500", "which removes about 14 of 20 messages", 6),
        ("--max-msgs-per-subject 2", "which removes 12 of 20 messages", 8),
        ("--max-msgs-per-subject 2 --max-msgs 4", "which removes about 16 of 20 messages", 4),
        ("--max-msgs 5 --discard new", "which refuses new messages until there is room", 20),
        ("--retention interest", "which removes what no consumer needs", 0),
    ],
)
def test_editing_says_how_many_messages_it_removes(
    at_server: Run, js: sync.JetStream, options: str, told: str, left: int
) -> None:
    filled(js)
    words = ("stream", "edit", "A", *options.split())
    would = ", ".join(filter(None, ("change stream A so", told)))
    assert at_server(*words, "--dry-run").lines[-1] == f"would {would}"
    assert f"Really {would}?" in at_server(*words, answer="n\n").err
    assert js.stream("A").info().state.messages == 20
    assert at_server(*words, "--force").status == 0
    assert js.stream("A").info().state.messages == left


def test_editing_counts_what_is_too_old_by_then(at_server: Run, js: sync.JetStream) -> None:
    filled(js, duplicate_window=0.1)
    for number in range(2, 5):
        js.stream("A").delete_message(number)
    document = at_server("stream", "edit", "A", "--max-age", "1h", "--dry-run", "--json").told
    assert document["removes"] == {"messages": 0, "of": 17, "exact": True}
    words = ("stream", "edit", "A", "--max-age", "100ms", "--dry-run", "--json")

    def removed() -> bool:
        document = at_server(*words).told
        return bool(document["removes"] == {"messages": 17, "of": 17, "exact": True})

    until_here(removed, "nothing grew old")
    assert js.stream("A").info().state.messages == 17


def test_what_destroys_asks_first(at_server: Run, js: sync.JetStream) -> None:
    stream = js.create_stream(name="A", subjects=["a.*"])
    for number in range(5):
        js.publish(f"a.{number % 2}", b"x")
    done = at_server("stream", "rm", "A", "--dry-run")
    assert done.out.startswith("would delete stream A with 5 messages (")
    done = at_server("stream", "rm", "A", answer="no\n")
    assert (done.status, "nothing was changed" in done.err) == (1, True)
    assert at_server("stream", "rm", "A").status == 1
    assert at_server("stream", "purge", "A", "--subject", "a.1", "-f", "--json").told["purged"] == 2
    assert at_server("stream", "purge", "A", "--keep", "2", "-f", "--json").told["purged"] == 1
    assert at_server("stream", "rmm", "A", "3", "--force").status == 0
    assert stream.info().state.messages == 1
    assert at_server("stream", "seal", "A", answer="y\n").status == 0
    assert stream.info().config.sealed
    assert at_server("stream", "rm", "A", "--force").lines == ["deleted stream A"]
    assert list(js.stream_names()) == []


@pytest.mark.parametrize("verb", [("rm",), ("info",), ("edit",), ("view",), ("purge",)])
def test_a_misspelt_stream_is_met_with_what_was_meant(
    at_server: Run, js: sync.JetStream, verb: tuple[str, ...]
) -> None:
    js.create_stream(name="ORDERS", subjects=["a"])
    done = at_server("stream", *verb, "ORDRES")
    assert (done.status, done.err) == (
        1,
        "headrace: there is no stream 'ORDRES'; did you mean 'ORDERS'?\n",
    )


def test_a_name_is_needed(at_server: Run) -> None:
    assert "give the stream a name" in at_server("stream", "create").err
    assert json.loads(at_server("stream", "ls", "--json").out) == []


def test_batches_are_allowed_by_the_names_of_the_fields(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="A", subjects=["a"])
    for field in ("allow_atomic", "allow_batched"):
        option = f"--{field.replace('_', '-')}"
        assert at_server("stream", "edit", "A", option, "--force").status == 0
        assert getattr(js.stream("A").info().config, field) is True
        assert option in at_server("stream", "edit", "--help").out


def test_the_words_of_the_nats_tool_are_taken(at_server: Run, js: sync.JetStream) -> None:
    words = "--subjects a.* --defaults --no-ack --allow-batched --allow-atomic --allow-msg-ttl"
    words += " --subject-del-markers-ttl 1m --limit-consumer-max-pending 50"
    words += " --limit-consumer-inactive 1h --republish a.*:b.{{wildcard(1)}} --republish-headers"
    done = at_server("stream", "add", "A", *words.split(), "--transform", "a.*:c.{{wildcard(1)}}")
    assert done.status == 0, done.err
    config = js.stream("A").info().config
    assert (config.no_ack, config.subject_delete_marker_ttl) == (True, 60)
    assert (config.allow_batched, config.allow_atomic) == (True, True)
    limits = config.consumer_limits
    assert (limits.max_ack_pending, limits.inactive_threshold) == (50, 3600)
    assert config.republish is not None
    assert (config.republish.src, config.republish.headers_only) == ("a.*", True)
    done = at_server("stream", "add", "B", "--republish-headers")
    assert "--republish-headers needs" in done.err


@pytest.mark.parametrize("first", ["client", "command"])
def test_a_program_and_a_command_that_say_the_same_make_the_same_stream(
    at_server: Run, js: sync.JetStream, first: str
) -> None:
    def program() -> object:
        stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
        assert stream.cached_info is not None
        return to_wire(stream.cached_info.config)

    def command() -> object:
        done = at_server("stream", "create", "ORDERS", "--subjects", "orders.>", "--json")
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)["config"]

    ways = (program, command) if first == "client" else (command, program)
    assert ways[0]() == ways[1]()


def test_the_fields_that_differ_are_named_with_both_values(
    at_server: Run, js: sync.JetStream
) -> None:
    js.create_stream(name="ORDERS", subjects=["orders.>"], allow_direct=True, max_msgs=5)
    with pytest.raises(StreamExistsError) as caught:
        js.create_stream(name="ORDERS", subjects=["orders.>"])
    assert caught.value.differences == {"allow_direct": (True, False), "max_msgs": (5, -1)}
    assert "10058" in str(caught.value)
    assert "allow_direct is True, not False" in str(caught.value)
    done = at_server("stream", "create", "ORDERS", "--no-allow-direct", "--max-msgs", "6")
    assert done.status == 1
    assert "other settings: max_msgs is 5, not 6; allow_direct is yes, not no\n" in done.err
