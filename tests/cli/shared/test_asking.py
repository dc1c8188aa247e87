"""A terminal of its own stands for the user's; what waits in a process is tested in ``test_terminal.py``."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from headrace.cli.shared.asking import read_all, read_line


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What is written there is typed; standard input is that terminal's."""
    ours, theirs = pty.openpty()
    with open(theirs, encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        yield ours
    os.close(ours)


def test_a_line_is_read_behind_its_prompt(
    keyboard: int, capsys: pytest.CaptureFixture[str]
) -> None:
    os.write(keyboard, b"yes\nmore\n")
    assert (read_line("Really? "), read_line("And? ")) == ("yes\n", "more\n")
    assert capsys.readouterr().err == "Really? And? "


def test_all_is_read_to_the_end_of_input(keyboard: int) -> None:
    os.write(keyboard, b"one\ntwo\n\x04")
    assert read_all() == b"one\ntwo\n"


def signal_just_before(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, then: bytes, keyboard: int
) -> list[int]:
    """The signal comes when the wait is about to begin: too late for its handler, whose turn is behind it."""
    real = select.select
    waits: list[int] = []

    def wait(*arguments: Any) -> Any:
        waits.append(len(waits))
        if len(waits) == 1:
            os.write(woken(), bytes([number]))  # all that the operating system's handler does
        else:
            os.write(keyboard, then)
        return real(*arguments)

    def woken() -> int:
        there = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(there, warn_on_full_buffer=False)
        return there

    monkeypatch.setattr(select, "select", wait)
    return waits


def test_a_signal_that_comes_just_before_the_wait_ends_it(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = signal_just_before(monkeypatch, signal.SIGINT, b"y\n", keyboard)
    assert read_line("") == "y\n"  # the handler is not called here, so it waits again
    assert waits == [0, 1]


def test_ctrl_c_is_an_abort(keyboard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("Ctrl-C came before")

    monkeypatch.setattr(select, "select", interrupted)
    before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with pytest.raises(click.Abort):
        read_line("")
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before


def test_a_signal_meanwhile_wakes_the_event_loop_that_waited_for_it(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable, written = os.pipe()
    os.set_blocking(written, False)
    before = signal.set_wakeup_fd(written)
    try:
        signal_just_before(monkeypatch, signal.SIGUSR1, b"y\n", keyboard)
        assert read_line("") == "y\n"
        assert signal.set_wakeup_fd(before) == written
        assert os.read(readable, 10) == bytes([signal.SIGUSR1])
    finally:
        signal.set_wakeup_fd(before)
        os.close(readable)
        os.close(written)


def test_a_loop_that_has_not_read_its_wake_ups_keeps_nobody_from_typing(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable, written = os.pipe()
    os.set_blocking(written, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(written, bytes(4096))
    before = signal.set_wakeup_fd(written)
    try:
        signal_just_before(monkeypatch, signal.SIGUSR1, b"y\n", keyboard)
        assert read_line("") == "y\n"
        assert signal.set_wakeup_fd(before) == written
    finally:
        signal.set_wakeup_fd(before)
        os.close(readable)
        os.close(written)


def test_where_ctrl_c_is_ignored_it_stays_so(keyboard: int) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        os.write(keyboard, b"y\n")
        assert read_line("") == "y\n"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
