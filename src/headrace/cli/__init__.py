"""The command line: ``headrace <command>``.

``commands.COMMANDS`` says which commands there are. Most are click commands, made of the parts in ``shared``
and imported only when they are used; they need the extra ``cli``. Those that run with the core install use
argparse: a module with ``add_arguments(parser)`` and ``run(args) -> int``, and optionally
``spell(arguments, parser)`` for flags with another spelling. ``headrace --version`` and ``--help`` import
neither. A program named ``nats-server``, for example through a link, is ``headrace serve``: test harnesses
start a server that way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .commands import COMMANDS, SECTIONS, resolve, what_to_install

if TYPE_CHECKING:
    import asyncio
    from types import ModuleType

__all__ = [
    "COMMANDS",
    "COMPLETE",
    "INTERRUPTED",
    "NATS_SERVER",
    "loop_factory",
    "main",
    "program_name",
]

NATS_SERVER: Final = "nats-server"
COMPLETE: Final = "_HEADRACE_COMPLETE"  # with this variable a shell asks for completions
COLUMNS_DEFAULT: Final = 80
INTERRUPTED: Final = 130  # the status shells use for a program ended by Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status; see docs/cli.md for what each means."""
    try:
        try:
            status = _main(argv)
        except SystemExit:  # by argparse
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError:  # who read our output has closed it; nor is there a use in flushing it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


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


def _main(argv: Sequence[str] | None) -> int:
    if argv is None and program_name() == NATS_SERVER:
        return _run_argparse("serve", sys.argv[1:])
    arguments = list(sys.argv[1:] if argv is None else argv)
    asked = os.environ.get(COMPLETE)
    if asked is not None:
        from .completion import complete

        return complete(asked)
    if arguments and arguments[0] in ("--version", "-v"):
        from .._version import __version__

        print(f"headrace {__version__}")
        return 0
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        if len(arguments) < 2 or arguments[0] != "help":
            print(_help())
            return 0
        arguments = [*arguments[1:], "--help"]  # `headrace help stream ls`
    name = resolve(arguments[0])
    if not name and not arguments[0].startswith("-"):
        print(f"headrace: {_unknown(arguments)}", file=sys.stderr)
        return 2
    try:
        if name and not COMMANDS[name].uses_click:
            return _run_argparse(name, arguments[1:])
        return _run_click(arguments)
    except ModuleNotFoundError as error:
        word = next((word for word in arguments if not word.startswith("-")), "")
        told = what_to_install(resolve(word), error.name or "")
        if not told:
            raise
        print(told, file=sys.stderr)
        return 1


def _unknown(words: list[str]) -> str:
    from difflib import get_close_matches

    from .commands import elsewhere

    meant, name = elsewhere(words), words[0]
    if meant:
        return meant
    near = get_close_matches(name, COMMANDS, 1)
    if near:
        return f"no command {name!r}; did you mean {near[0]!r}?"
    return f"no command {name!r}; `headrace --help` lists those there are"


def _run_argparse(name: str, arguments: list[str]) -> int:
    import argparse
    from functools import partial

    module = _imported(f".{name}")
    parser = argparse.ArgumentParser(
        prog=f"headrace {name}",
        description=(module.__doc__ or "").split("\n\n")[0],
        allow_abbrev=False,
        formatter_class=partial(argparse.HelpFormatter, width=_columns() - 2),
    )
    module.add_arguments(parser)
    spell = getattr(module, "spell", None)
    if spell is not None:
        arguments = spell(arguments, parser)
    status: int = module.run(parser.parse_args(arguments))
    return status


def _columns() -> int:
    """How wide the terminal is: as argparse finds it, but without loading what compresses archives."""
    try:
        return int(os.environ["COLUMNS"]) or COLUMNS_DEFAULT
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size().columns or COLUMNS_DEFAULT
    except OSError:  # not a terminal
        return COLUMNS_DEFAULT


def _imported(name: str) -> ModuleType:
    """A module of this package.

    What imports make stays: to look for garbage in it would take an eighth of a start.
    """
    import gc
    from importlib import import_module

    if f"{__package__}{name}" in sys.modules or not gc.isenabled():
        return import_module(name, __package__)
    gc.disable()
    try:
        return import_module(name, __package__)
    finally:
        gc.freeze()
        gc.enable()


def _run_click(arguments: list[str]) -> int:
    from .root import run

    return run(arguments)


def _help() -> str:
    lines = ["usage: headrace [--version] [--server URL] [--context NAME] <command> …"]
    for title, entries in SECTIONS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:10} {entry.summary}" for name, entry in entries.items()]
    return "\n".join([*lines, "", "See `headrace <command> --help` for details."])
