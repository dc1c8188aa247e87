"""Deliver jobs over HTTP: run the service, define channels and consumers, manage dead letters.

`headrace jobs serve` runs the service. The other commands connect to a running one: `--url` (or
`HEADRACE_JOBS_URL`) is its URL, `HEADRACE_JOBS_ADMIN_TOKEN` its admin token.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys

__all__ = ["add_arguments", "run"]

_NEEDED = ("starlette", "uvicorn", "httptools", "httpx2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command per operation."""
    if _missing():
        parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
        return
    from .jobs_commands import add_commands

    add_commands(parser)


def run(args: argparse.Namespace) -> int:
    """Run the sub-command. Returns 0 on success, 1 if it failed."""
    missing = _missing()
    if missing:
        print(
            f"headrace jobs: {', '.join(missing)} missing; install them with: pip install 'headrace[jobs]'",
            file=sys.stderr,
        )
        return 1
    from ..errors import HeadraceError

    try:
        status: int = args.carry_out(args)
    except HeadraceError as error:
        print(f"headrace jobs: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has closed it.
        sys.stderr.close()
        return 0
    return status


def _missing() -> list[str]:
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]
