"""What a user types on standard input, which Ctrl-C ends at once; whether something may be destroyed."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from .errors import Failure
from .output import Output

_READ_BYTES: Final = 1 << 16


def read_line(prompt: str) -> str:
    """The line that is typed behind ``prompt``; empty at the end of input. Raises click.Abort at Ctrl-C."""
    with _interruptible() as signals:
        print(prompt, end="", file=sys.stderr, flush=True)
        if sys.stdin.isatty():
            signals.wait()
        return sys.stdin.readline()


def read_all() -> bytes:
    """All of it, to the end of input; a terminal is told how that is typed. Raises click.Abort at Ctrl-C."""
    with _interruptible() as signals:
        if not sys.stdin.isatty():
            return sys.stdin.buffer.read()
        print("reading standard input; Ctrl-D ends it", file=sys.stderr, flush=True)
        parts: list[bytes] = []
        while True:
            signals.wait()
            part = os.read(sys.stdin.fileno(), _READ_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)


class _Signals:
    """The signals that come while standard input is waited for.

    A read that has not quite begun when one comes would wait for a line all the same: Python's handler runs
    only behind it. A signal writes a byte to a pipe as well, which is not overlooked.
    """

    def __init__(self) -> None:
        self._readable, self._written = os.pipe()
        for end in (self._readable, self._written):
            os.set_blocking(end, False)
        self._before = signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)

    def wait(self) -> None:
        """Until a line of the terminal is there, or its end; a handler may raise before."""
        terminal = sys.stdin.fileno()
        while True:
            ready, _, _ = select.select([terminal, self._readable], [], [])
            if terminal in ready:
                return
            self._hand_on()  # the handler has run by now, or does before the next wait

    def close(self) -> None:
        """Whoever was woken by signals before is so again, and hears of those that came."""
        signal.set_wakeup_fd(self._before)
        self._hand_on()
        os.close(self._readable)
        os.close(self._written)

    def _hand_on(self) -> None:
        try:
            came = os.read(self._readable, _READ_BYTES)
        except BlockingIOError:
            return
        if self._before != -1:
            with suppress(
                BlockingIOError
            ):  # it is full: whoever reads it is woken by what is there
                os.write(self._before, came)


class _Ignored:
    """Ctrl-C is ignored: standard input is only read."""

    def wait(self) -> None:
        """A read waits by itself."""


@contextmanager
def _interruptible() -> Iterator[_Signals | _Ignored]:
    """Standard input is read within: Ctrl-C ends that at once. Raises click.Abort then.

    A running event loop takes the signal and cancels its task. A task that waits for a line learns of that
    only when the line is there, and would do what the line says.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield _Ignored()
        return
    signals = _Signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield signals
    except KeyboardInterrupt:
        raise click.Abort from None
    finally:
        signal.signal(signal.SIGINT, before)
        signals.close()


def destroying_options() -> list[click.Option]:
    """``--force`` and ``--dry-run``."""
    return [
        click.Option(["-f", "--force"], is_flag=True, help="do not ask"),
        click.Option(["--dry-run"], is_flag=True, help="say what would be done, and do nothing"),
    ]


def may_go_on(output: Output, what: str, more: Mapping[str, Any] | None = None) -> bool:
    """Whether to do it: ``what`` is a sentence such as "delete stream ORDERS with 5 messages".

    With ``--dry-run`` it only says so, programs with ``more`` fields. Without ``--force`` it asks. Raises
    Failure if the answer is no.
    """
    if output.dry_run:
        output.show({"dry_run": True, "would": what, **(more or {})}, f"would {what}")
        return False
    if not output.force:
        ask(f"Really {what}?")
    return True


def ask(question: str) -> None:
    """Raises Failure unless the answer is yes."""
    sys.stdout.flush()
    answer = read_line(f"{question} [y/N] ")
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed; answer y, or give --force")
