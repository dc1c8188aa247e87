"""The front of the command line: help, misspellings, statuses, closed pipes, a missing extra."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from headrace.cli.commands import COMMANDS, HERE, NOT_HERE

Run = Callable[..., Any]
NOWHERE = "nats://127.0.0.1:1"


def test_help_names_every_command(headrace: Run) -> None:
    done = headrace("--help")
    assert all(f"  {name} " in done.out for name in COMMANDS)
    assert headrace().out == done.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("steam", "ls"), "headrace: no command 'steam'; did you mean 'stream'?"),
        (("xyzzy",), "`headrace --help` lists those there are"),
        (("stream", "inof", "A"), "no command 'inof'; did you mean 'info'?"),
        (("stream", "ls", "--subjct", "a"), "No such option '--subjct'. Did you mean '--subject'?"),
        (("stream", "info"), "Missing argument 'STREAM'"),
        (("stream", "ls", "--json", "--yaml"), "give --json or --yaml, not both"),
        (("stream", "ls", "--timeout", "soon"), "accepted: 500ms, 90s"),
        (("--timeout", "2s", "serve"), "'serve' takes its options behind its name"),
    ],
)
def test_a_misspelling_is_met_with_what_was_meant(
    headrace: Run, words: tuple[str, ...], text: str
) -> None:
    done = headrace(*words)
    assert done.status == 2
    assert text in done.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("latency",), "`nats latency` is not here: that tool does it with our broker, too"),
        (("srv", "check", "stream", "A"), "`headrace doctor` looks at all of them"),
        (("micro", "ls"), "`nats micro` is not here"),
        (("account", "backup", "DIR"), "is here: headrace stream backup --all DIR"),
        (("con", "state", "A", "c"), "is here: headrace consumer info STREAM CONSUMER"),
        (("stream", "cluster", "step-down", "A"), "$JS.API.STREAM.LEADER.STEPDOWN.STREAM"),
        (("stream", "cluster", "balance"), "`nats stream cluster` is not here: clusters place"),
        (("server", "ls"), "is here: headrace server report jetstream"),
        (("trace", "a.b"), "is not here: nats-server alone traces messages"),
    ],
)
def test_what_the_nats_tool_calls_otherwise_is_told(
    headrace: Run, words: tuple[str, ...], text: str
) -> None:
    done = headrace(*words)
    assert done.status == 2
    assert text in done.err


@pytest.mark.parametrize("name", sorted({**HERE, **NOT_HERE}))
def test_nothing_is_told_of_that_is_here(headrace: Run, name: str) -> None:
    done = headrace(*name.split(), "--help")
    assert done.status == 2
    assert f"`nats {name}` is " in done.err


@pytest.mark.parametrize("text", sorted(set(HERE.values())))
def test_what_it_is_called_here_is_a_command(headrace: Run, text: str) -> None:
    for command in re.findall(r"headrace ([a-z][a-z ]*[a-z])", text):
        words = command.split()
        if words[0] == "serve":
            continue  # its help ends the process
        assert headrace(*words, "--help").status == 0, command


def test_no_server_is_told_in_a_sentence_with_the_next_step(headrace: Run) -> None:
    done = headrace("stream", "ls", "-s", NOWHERE)
    assert done.status == 3
    first, *_ = done.err.splitlines()
    assert first == "headrace: no server could be reached; nats://127.0.0.1:1: Connection refused"
    assert "headrace serve -js" in done.err
    assert "Traceback" not in done.err


def test_connection_options_may_stand_in_front(headrace: Run) -> None:
    for words in (("-s", NOWHERE, "stream", "ls"), ("stream", "-s", NOWHERE, "ls")):
        done = headrace(*words)
        assert (done.status, "127.0.0.1:1" in done.err) == (3, True)


def test_help_of_a_verb_is_found_in_both_ways(headrace: Run) -> None:
    done = headrace("stream", "ls", "--help")
    assert "--json" in done.out
    assert headrace("help", "stream", "ls").out == done.out


def test_version_and_help_import_no_framework() -> None:
    code = (
        "import sys; from headrace.cli import main; main(['--version']); main(['--help']); "
        "assert not {'click', 'rich', 'argparse', 'asyncio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_help_of_a_verb_imports_no_client() -> None:
    code = (
        "import sys; from headrace.cli import main; main(['stream', '--help']); "
        "main(['stream', 'ls', '--help']); main(['consumer', 'info', '--help']); "
        "found = {'headrace.client', 'asyncio', 'rich', 'yaml'} & set(sys.modules); "
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_without_the_extra_its_name_is_said() -> None:
    code = (
        "import sys; sys.modules['click'] = None; from headrace.cli import main; "
        "sys.exit(main(['stream', 'ls']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "headrace stream: needs the package click, which is not installed",
        "  pip install 'headrace[cli]'    installs what it needs",
    ]


@pytest.mark.parametrize("words", [["--help"], ["stream", "--help"], ["serve", "--help"]])
def test_a_closed_pipe_ends_it_quietly(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_it_with_the_status_of_shells() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["stream", "ls", "-s", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "60s"]
        command = [sys.executable, "-m", "headrace", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()  # it waits for a greeting now, on its event loop
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=10)
        connection.close()
    assert (process.returncode, said) == (130, "")
