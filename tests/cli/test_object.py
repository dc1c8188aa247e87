"""Object buckets from the command line, against both servers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import sync

Run = Callable[..., Any]


def test_a_file_goes_in_and_comes_out(
    at_server: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = os.urandom(300_000)
    file = tmp_path / "report.pdf"
    file.write_bytes(content)
    assert at_server("object", "ls").lines == ["no buckets; `headrace object add NAME` creates one"]
    assert at_server("object", "add", "reports", "--ttl", "90d").status == 0
    assert at_server("object", "ls", "reports").lines == [
        "no objects; `headrace object put reports FILE` stores one"
    ]
    done = at_server(
        "object", "put", "reports", str(file), "--force", "--description", "of May", "-H", "A:1"
    )
    assert done.lines == ["stored 293.0 KiB as reports > report.pdf"]
    done = at_server("object", "get", "reports", "report.pdf", answer="n\n")
    assert (done.status, "Really replace report.pdf?" in done.err) == (1, True)
    file.unlink()
    assert at_server("object", "get", "reports", "report.pdf").status == 0
    assert file.read_bytes() == content
    assert at_server("object", "get", "reports", "report.pdf", "-O", "other").status == 0
    assert Path("other").read_bytes() == content
    told = at_server("object", "info", "reports", "report.pdf", "--json").told
    assert (told["size"], told["headers"], told["description"]) == (300_000, {"A": ["1"]}, "of May")
    assert "SHA-256:" in at_server("object", "info", "reports", "report.pdf").out
    assert at_server("object", "ls", "reports", "-n").lines == ["report.pdf"]
    assert at_server("obj", "ls", "--json").told[0]["bucket"] == "reports"
    assert "90d" in at_server("object", "info", "reports").out


def test_an_object_comes_from_standard_input_and_goes_to_standard_output(
    at_server: Run, js: sync.JetStream
) -> None:
    js.create_object_store("b")
    assert (
        "give what comes from standard input a --name" in at_server("object", "put", "b", "-").err
    )
    assert at_server("object", "put", "b", "-", "--name", "n", answer="text").status == 0
    assert at_server("object", "get", "b", "n", "-O", "-").out == "text"
    assert at_server("object", "put", "b", "/no/such").err == (
        "headrace: /no/such: No such file or directory\n"
    )
    done = at_server("object", "get", "b", "nothing")
    assert (done.status, "nothing" in done.err) == (1, True)


def test_objects_go(at_server: Run, js: sync.JetStream) -> None:
    store = js.create_object_store("b")
    store.put("n", b"1")
    assert at_server("object", "rm", "b", "n", "--dry-run").out == (
        "would delete object n of bucket b (1 B)\n"
    )
    assert at_server("object", "del", "b", "n", answer="y\n").status == 0
    seen = [
        json.loads(line)
        for line in at_server("object", "watch", "b", "--count", "1", "--json").lines
    ]
    assert (seen[0]["name"], seen[0]["deleted"]) == ("n", True)
    assert at_server("object", "seal", "b", "-f").status == 0
    assert store.status().sealed
    assert at_server("object", "del", "b", "--force").lines == ["deleted bucket b"]


def test_a_bucket_that_is_not_there_is_told_with_the_command_that_creates_it(
    at_server: Run,
) -> None:
    done = at_server("object", "put", "reports", "-", "--name", "n", answer="text")
    assert "  headrace object add reports    creates it" in done.err.splitlines()
