"""Before something is destroyed: ``--dry-run``, a question, ``--force``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from .errors import Failure
from .output import Output
from .typed import read_line


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
