"""Commands on a real terminal: pages, bars, pictures, colours, questions."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from contextlib import ExitStack

import pytest

import peers
from headrace import sync

ROWS, COLUMNS = 30, 70


CTRL_C = "\x03"


def on_terminal(server: peers.ServerProcess, *words: str, typed: dict[str, str]) -> tuple[int, str]:
    """Run a command; what is ``typed`` answers the texts it waits behind, in order. Status and screen.

    Ctrl-C is handed over as the signal that a terminal makes of it.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {**os.environ, "TERM": "xterm", "NATS_URL": server.url}
    environ.pop("COLUMNS", None)
    environ.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "headrace", *words]
    with (
        subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
        ) as process,
        ExitStack() as stack,
    ):
        os.close(theirs)
        stack.callback(process.kill)  # a command that hangs ends with the time limit of its test
        shown, waiting, seen = b"", list(typed.items()), 0
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # the end of a terminal
                break
            shown += part
            if waiting and waiting[0][0].encode() in shown[seen:]:
                seen = len(shown)
                answer = waiting.pop(0)[1]
                if answer.startswith(CTRL_C):
                    process.send_signal(signal.SIGINT)
                    answer = answer.removeprefix(CTRL_C)
                os.write(ours, answer.encode())
        status = process.wait(20)
    os.close(ours)
    assert not waiting, shown
    return status, shown.decode()


def test_a_stream_is_viewed_a_page_at_a_time(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    js.create_stream(name="A", subjects=["a"], allow_direct=True)
    for number in range(1, 8):
        js.publish("a", b"message %d" % number)
    typed = {"-- Enter: next page, q: end -- ": "\n", "q: end -- ": "q\n"}
    status, shown = on_terminal(either_server, "stream", "view", "A", "3", typed=typed)
    assert status == 0
    assert "message 6" in shown
    assert "message 7" not in shown


def test_a_question_is_answered_on_the_terminal(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    js.create_stream(name="A", subjects=["a"])
    question = "Really delete stream A with 0 messages (0 B) and 0 consumers? [y/N] "
    status, _ = on_terminal(either_server, "stream", "rm", "A", typed={question: "y\n"})
    assert (status, list(js.stream_names())) == (0, [])


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (("stream", "rm", "A"), "Really delete stream A"),
        (("stream", "edit", "A", "--max-msgs", "1"), "Really change stream A so"),
        (("stream", "purge", "A"), "Really "),
        (("kv", "del", "B"), "Really delete bucket B"),
    ],
)
@pytest.mark.parametrize("after", ["", "y\n"])
def test_ctrl_c_at_a_question_changes_nothing_whatever_is_typed_after_it(
    either_server: peers.ServerProcess,
    js: sync.JetStream,
    words: tuple[str, ...],
    question: str,
    after: str,
) -> None:
    js.create_stream(name="A", subjects=["a"])
    js.publish("a", b"kept")
    js.publish("a", b"kept")
    js.create_key_value("B")
    status, shown = on_terminal(either_server, *words, typed={question: CTRL_C + after})
    assert status == 130, shown
    info = js.stream("A").info()
    assert (info.state.messages, info.config.max_msgs) == (2, -1)
    assert js.key_value("B").status().bucket == "B"
    assert "Traceback" not in shown


def test_ctrl_c_ends_a_page_and_what_is_read_from_the_terminal(
    either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    js.create_stream(name="A", subjects=["a"])
    for _ in range(3):
        js.publish("a")
    status, _ = on_terminal(either_server, "stream", "view", "A", "1", typed={"q: end -- ": CTRL_C})
    assert status == 130
    typed = {"Ctrl-D ends it": CTRL_C}
    assert on_terminal(either_server, "pub", "a", "-", "-J", typed=typed)[0] == 130
    assert js.stream("A").info().state.messages == 3


def test_long_work_shows_a_bar(either_server: peers.ServerProcess, js: sync.JetStream) -> None:
    status, shown = on_terminal(either_server, "bench", "pub", "a", "--msgs", "5000", typed={})
    assert status == 0
    assert "publishing" in shown
    assert "5000/5000" in shown
    assert "\x1b[1;36m" in shown  # the headings of the table
