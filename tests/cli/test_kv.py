"""Key-value buckets from the command line, against both servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from headrace import sync

Run = Callable[..., Any]


def test_from_no_bucket_to_a_value(at_server: Run) -> None:
    assert at_server("kv", "ls").lines == ["no buckets; `headrace kv add NAME` creates one"]
    done = at_server("kv", "get", "settings", "a")
    assert done.err.splitlines() == [
        "headrace: there is no bucket 'settings', nor any other",
        "  headrace kv add settings    creates it",
    ]
    assert at_server("kv", "add", "settings", "--history", "3", "--description", "ours").status == 0
    assert at_server("kv", "ls", "settings").lines == [
        "no keys; `headrace kv put settings KEY VALUE` sets one"
    ]
    assert at_server("kv", "put", "settings", "a", "1").lines == ["settings > a is at revision 1"]
    assert at_server("kv", "get", "settings", "a").lines[2] == "1"
    assert at_server("kv", "get", "settings", "a", "--raw").out == "1"
    done = at_server("kv", "get", "settings", "b")
    assert (done.status, "  headrace kv ls settings    lists" in done.err) == (1, True)
    assert at_server("kv", "ls", "-n").lines == ["settings"]
    row = at_server("kv", "ls", "--json").told[0]
    assert (row["bucket"], row["values"], row["history"]) == ("settings", 1, 3)
    assert "History:             3" in at_server("kv", "info", "settings").out


def test_values_change_and_go(at_server: Run, js: sync.JetStream) -> None:
    bucket = js.create_key_value("b", history=5)
    assert at_server("kv", "create", "b", "k", "one").status == 0
    assert at_server("kv", "create", "b", "k", "again").status == 1
    assert at_server("kv", "update", "b", "k", "two", "1").status == 0
    assert at_server("kv", "update", "b", "k", "three", "1").status == 1
    assert at_server("kv", "put", "b", "k", answer="from standard input").status == 0
    revisions = at_server("kv", "history", "b", "k", "--json").told
    assert [(each["revision"], each["value"]) for each in revisions] == [
        (1, "one"),
        (2, "two"),
        (3, "from standard input"),
    ]
    assert at_server("kv", "get", "b", "k", "--revision", "1", "--json").told["value"] == "one"
    assert at_server("kv", "revert", "b", "k", "2", answer="y\n").status == 0
    assert bucket.get("k").value == b"two"
    assert at_server("kv", "del", "b", "k", answer="n\n").status == 1
    assert at_server("kv", "rm", "b", "k", "-f").lines == ["deleted b > k"]
    assert at_server("kv", "history", "b", "k").lines[-1].split()[1] == "delete"
    assert at_server("kv", "purge", "b", "k", "-f").status == 0
    assert at_server("kv", "compact", "b", "--older-than", "0s", "-f", "--json").told["keys"] == 1
    assert "no keys" in at_server("kv", "ls", "b").out


def test_a_bucket_is_deleted_when_no_key_is_named(at_server: Run, js: sync.JetStream) -> None:
    js.create_key_value("b").put("k", b"1")
    assert at_server("kv", "del", "b", "--dry-run").out.startswith(
        "would delete bucket b with 1 entry ("
    )
    assert at_server("kv", "del", "b", answer="y\n").lines == ["deleted bucket b"]
    assert list(js.key_values()) == []


def test_changes_are_watched(at_server: Run, js: sync.JetStream) -> None:
    bucket = js.create_key_value("b")
    bucket.put("k", b"a\nb")
    bucket.put("l", b"\xff")
    bucket.delete("k")
    lines = at_server("kv", "watch", "b", "--count", "2").lines
    assert lines[0].endswith("PUT b > l: 0xff")
    assert lines[1].endswith("DELETE b > k")
    seen = [
        json.loads(line)
        for line in at_server("kv", "watch", "b", "l", "--count", "1", "--json").lines
    ]
    assert seen[0]["value_base64"] == "/w=="


def test_a_bucket_that_is_not_there_is_met_with_those_of_its_kind(
    at_server: Run, js: sync.JetStream
) -> None:
    js.create_object_store("FILES")
    done = at_server("kv", "get", "nope", "k")
    assert (done.status, done.out) == (1, "")
    assert "there is no bucket 'nope', nor any other\n" in done.err
    assert "headrace kv add nope" in done.err
    js.create_key_value("settings")
    done = at_server("kv", "get", "nope", "k")
    assert "there is no bucket 'nope'; there are: settings\n" in done.err
    for name in ("object", "obj"):
        done = at_server(name, "ls", "nope")
        assert "there is no bucket 'nope'; there are: FILES\n" in done.err
