"""The command line: ``headrace <command>``.

A command is a module with ``add_arguments(parser)`` and ``run(args) -> int``, and optionally
``spell(arguments, parser)`` for flags with another spelling. It is imported only when it is used, so that
``headrace --version`` answers at once. A program named ``nats-server``, for example through a link, is
``headrace serve``: test harnesses start a server that way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

__all__ = ["COMMANDS", "NATS_SERVER", "loop_factory", "main", "program_name"]

NATS_SERVER: Final = "nats-server"

COMMANDS = {
    "serve": "run the broker",
    "jobs": "deliver jobs over HTTP: push and pull consumers, retries, dead letters",
    "group": "consumer groups: static and elastic, strict order for each key",
    "demo": "publish a year of real flights, read them with Spark, draw how delays carry over",
}
"""The commands and their summaries; the module of each has its name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    if argv is None and program_name() == NATS_SERVER:
        return _run("serve", sys.argv[1:])
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in ("--version", "-v"):
        from .._version import __version__

        print(f"headrace {__version__}")
        return 0
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(_help())
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f"headrace: no command {name!r}; accepted are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return _run(name, arguments[1:])


def program_name() -> str:
    """``nats-server`` if the program was called by that name, otherwise ``headrace``."""
    return NATS_SERVER if Path(sys.argv[0]).name == NATS_SERVER else "headrace"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed: sockets cost half as much."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _run(name: str, arguments: list[str]) -> int:
    import argparse
    from importlib import import_module

    module = import_module(f".{name}", __package__)
    parser = argparse.ArgumentParser(
        prog=f"headrace {name}",
        description=(module.__doc__ or "").split("\n\n")[0],
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    spell = getattr(module, "spell", None)
    if spell is not None:
        arguments = spell(arguments, parser)
    status: int = module.run(parser.parse_args(arguments))
    return status


def _help() -> str:
    lines = ["usage: headrace [--version] <command> …", "", "commands:"]
    lines += [f"  {name:8} {text}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", "See `headrace <command> --help` for details."])
