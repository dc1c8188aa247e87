from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import sync
from headrace.sync.groups import elastic, static

Run = Callable[..., Any]


def test_each_shell_has_its_script(headrace: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_HEADRACE_COMPLETE=" in headrace("completion", shell).out
    assert headrace("completion", "csh").status == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("headrace str", ["stream"]),
        ("headrace stream pu", ["purge"]),
        ("headrace stream ls --js", ["--json", "--js-domain", "--js-api-prefix"]),
        ("headrace stream info ORD", ["ORDERS", "ORDERS-mill"]),
        ("headrace consumer next ORDERS b", ["billing"]),
        ("headrace kv get se", ["settings"]),
        ("headrace kv get settings co", ["colour"]),
        ("headrace kv del settings ", ["colour", "size"]),
        ("headrace object get FILES re", ["report.pdf"]),
        ("headrace group elastic info ORDERS mi", ["mill"]),
        ("headrace group static info PA", ["PARTS"]),
        ("headrace group static info PARTS ", ["plain"]),
        ("headrace server check ", ["connection", "findings", "jetstream"]),
        ("headrace serve --store_", ["--store_dir"]),
        ("headrace serve --tlsc", ["--tlscacert", "--tlscert"]),
    ],
)
def test_words_are_completed(
    at_server: Run,
    js: sync.JetStream,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    expected: list[str],
) -> None:
    js.create_stream(name="ORDERS", subjects=["o"]).create_consumer(durable_name="billing")
    settings = js.create_key_value("settings")
    for key in ("colour", "size"):
        settings.put(key, b"1")
    js.create_object_store("FILES").put("report.pdf", b"x")
    js.create_stream(name="PARTS", subjects=["0.parts", "1.parts"])
    static.create(js, "PARTS", "plain", 2, members=["m"])
    elastic.create(js, "ORDERS", "mill", 2)
    monkeypatch.setenv("_HEADRACE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    done = at_server()
    assert sorted(line.partition(",")[2] for line in done.lines) == sorted(expected)


def test_a_shell_that_completes_hears_no_errors(
    headrace: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_HEADRACE_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "headrace -s nats://127.0.0.1:1 stream info A")
    monkeypatch.setenv("COMP_CWORD", "5")
    done = headrace()
    assert (done.status, done.out.strip(), done.err) == (0, "", "")
    monkeypatch.setenv("_HEADRACE_COMPLETE", "csh_complete")
    assert headrace().status == 1
