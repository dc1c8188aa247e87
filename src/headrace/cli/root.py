"""The root of the click commands: it runs one, and turns what goes wrong into a sentence and a status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ..errors import HeadraceError
from . import INTERRUPTED
from .commands import COMMANDS
from .shared.errors import USAGE, Failure, Told, explain
from .shared.output import printable
from .shared.verbs import LazyGroup

root = LazyGroup("headrace", COMMANDS, "One command for streams, consumers, buckets and servers.")


def run(arguments: Sequence[str]) -> int:
    """Run the command these words name. Returns the exit status."""
    try:
        with root.make_context("headrace", list(arguments)) as context:
            status = root.invoke(context)
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.UsageError as error:
        _complain(error)
        return USAGE
    except click.Abort:  # Ctrl-C, or the end of the input, at a question
        print(file=sys.stderr)
        return INTERRUPTED
    except click.ClickException as error:
        return _tell(error.told if isinstance(error, Failure) else Told(error.format_message()))
    except HeadraceError as error:
        return _tell(explain(error))
    return status if isinstance(status, int) else 0


def _tell(told: Told) -> int:
    sys.stdout.flush()
    print(printable(f"headrace: {told.text}"), file=sys.stderr)
    for step in told.next_steps:
        print(f"  {step}", file=sys.stderr)
    return told.status


def _complain(error: click.UsageError) -> None:
    context = error.ctx
    path = context.command_path if context is not None else "headrace"
    if context is not None:
        print(context.get_usage().replace("Usage:", "usage:"), file=sys.stderr)
        print(f"       {path} --help    says more", file=sys.stderr)
    print(f"{path}: {error.format_message()}", file=sys.stderr)
