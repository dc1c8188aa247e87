"""Terminals in which pages are typed as a reader types them: a line at a time, each at its prompt."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Terminal", "python_prompt", "shell"]

_SHELL: Final = re.compile(rb"reader (?P<status>\d+) % $|\[y/N\] $")
_PYTHON: Final = re.compile(rb"(?:^|\n)(?:>>>|\.\.\.) $")
_ROWS, _COLUMNS = 50, 200  # no line is broken in two
_CTRL_C, _CTRL_D = b"\x03", b"\x04"
_PROMPT_S: Final = 240.0  # the slowest command starts Spark, on a busy machine
_LEAVES_S: Final = 20.0


class Terminal:
    """A process on a terminal of its own, as its leader: what is typed reaches it, and Ctrl-C too."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        prompt: re.Pattern[bytes],
    ) -> None:
        self._prompt = prompt
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        try:
            self._process = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=folder,
                env={**environ, "TERM": "dumb", "COLUMNS": str(_COLUMNS)},
                start_new_session=True,
                preexec_fn=_take_the_terminal,
            )
        finally:
            os.close(theirs)
        self._is_at_prompt = self._is_closed = False
        self.screen = ""
        """All that was shown."""
        self.status: int | None = 0
        """How a shell's last command ended; None while it asks a question, and of no shell."""

    def __enter__(self) -> Self:
        self._shown_at_prompt()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def type(self, line: str) -> list[str]:
        """Type a line and Enter; what is shown, without what was typed, until there is a prompt again."""
        self.send(line)
        return self._shown_at_prompt()[1:]

    def send(self, line: str) -> None:
        """Type a line and Enter, and wait for nothing."""
        self._is_at_prompt = False
        os.write(self._ours, line.encode() + b"\n")

    def wait_for(self, words: str) -> None:
        """Until this is shown, and before there is a prompt again."""
        wanted = words.encode()
        shown = self._read(lambda text: wanted in text or self._prompt.search(text) is not None)
        assert wanted in shown, f"it ended before it showed {words!r}:\n{self.screen}"

    def interrupt(self) -> list[str]:
        """Ctrl-C; what is shown until there is a prompt again."""
        os.write(self._ours, _CTRL_C)
        return self._shown_at_prompt()

    def close(self) -> None:
        """Leave it as a reader does: Ctrl-C where something runs, then Ctrl-D."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if not self._is_at_prompt:
                self.interrupt()
            os.write(self._ours, _CTRL_D)
            self._read(None, _LEAVES_S)
            self._process.wait(_LEAVES_S)
        finally:
            if self._process.poll() is None:
                os.killpg(os.tcgetpgrp(self._ours), signal.SIGKILL)  # what it runs, or itself
                self._process.kill()
            os.close(self._ours)
            self._process.wait()

    def _shown_at_prompt(self) -> list[str]:
        shown = self._read(lambda text: self._prompt.search(text) is not None)
        found = self._prompt.search(shown)
        assert found is not None
        status = found.groupdict().get("status")
        self.status = None if status is None else int(status)
        self._is_at_prompt = True
        return shown.decode(errors="replace").splitlines()[:-1]

    def _read(self, is_enough: Callable[[bytes], bool] | None, within: float = _PROMPT_S) -> bytes:
        """What is shown until it is enough; None: until the terminal is closed."""
        deadline = time.monotonic() + within
        text = b""
        while is_enough is None or not is_enough(text):
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nothing more came within {within} s:\n{self.screen}"
            try:
                part = os.read(self._ours, 65_536)
            except OSError:  # so the end of a terminal is told
                part = b""
            if not part:
                assert is_enough is None, f"the terminal was closed:\n{self.screen}"
                break
            part = part.replace(b"\r", b"")
            text += part
            self.screen += part.decode(errors="replace")
        return text


def _take_the_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def shell(folder: Path, environ: Mapping[str, str]) -> Terminal:
    """A shell; its prompt tells how the command before ended."""
    command = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    return Terminal(command, folder, {**environ, "PS1": r"reader $? % "}, _SHELL)


def python_prompt(folder: Path, environ: Mapping[str, str]) -> Terminal:
    """``python -m asyncio`` without an editor: what can be typed there can be pasted into any."""
    basic = {**environ, "PYTHON_BASIC_REPL": "1"}
    return Terminal([sys.executable, "-m", "asyncio"], folder, basic, _PYTHON)
