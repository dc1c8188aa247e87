"""Before something is destroyed: ``--dry-run``, a question, ``--force``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from .errors import Failure
from .output import Output


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
    answer = answer_to(f"{question} [y/N] ")
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed; answer y, or give --force")


def answer_to(prompt: str) -> str:
    """The line of standard input that is typed behind ``prompt``. Raises click.Abort at Ctrl-C."""
    with interruptible():
        print(prompt, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()


@contextmanager
def interruptible() -> Iterator[None]:
    """Standard input is read within: Ctrl-C ends that at once. Raises click.Abort then.

    A running event loop takes the signal and cancels its task. A task that waits for a line learns of that
    only when the line is there, and would do what the line says.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise click.Abort from None
    finally:
        signal.signal(signal.SIGINT, before)
