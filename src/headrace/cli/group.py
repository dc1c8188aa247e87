"""Administer partitioned consumer groups, and take part in them.

`headrace group static …` and `headrace group elastic …` speak to any server with JetStream. Which one, and as
whom, say `--server`, `--context` (a context of the `nats` tool) and the `NATS_…` variables.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .group_commands import Verb

__all__ = ["add_arguments", "run", "spell"]

INTERRUPTED: Final = 130  # the status shells use for a program ended by Ctrl-C
KINDS: Final = {
    "static": "groups whose members are fixed when they are created",
    "elastic": "groups whose members come and go",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A sub-command for each kind of group, and below it one for each verb."""
    first = "|".join((*KINDS, *_plain()))
    kinds = parser.add_subparsers(required=True, metavar=first, dest="kind")
    for kind, text in KINDS.items():
        part = kinds.add_parser(kind, help=text, description=text, allow_abbrev=False)
        verbs = part.add_subparsers(required=True, metavar="<command>", dest="verb")
        for verb in _verbs(kind):
            _add(verbs, verb)
    for verb in _plain().values():
        _add(kinds, verb).set_defaults(kind="elastic")


def _add(commands: Any, verb: Verb) -> argparse.ArgumentParser:
    name, *aliases = verb.names
    command: argparse.ArgumentParser = commands.add_parser(
        name, aliases=aliases, help=verb.help, description=verb.help, allow_abbrev=False
    )
    _add_connection(command)
    verb.add_arguments(command)
    command.set_defaults(carry_out=verb.carry_out)
    return command


def spell(arguments: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """Say what was meant where a kind or a command is misspelled."""
    words = [word for word in arguments[:2] if not word.startswith("-")]
    if words and words[0] in _plain():
        return arguments
    if words and words[0] not in KINDS:
        parser.error(f"no kind of group {words[0]!r}; {_meant(words[0], (*KINDS, *_plain()))}")
    if len(words) == 2:
        known = [name for verb in _verbs(words[0]) for name in verb.names]
        if words[1] not in known:
            first = [verb.names[0] for verb in _verbs(words[0])]
            parser.error(f"no command {words[1]!r}; {_meant(words[1], known, first)}")
    return arguments


def run(args: argparse.Namespace) -> int:
    """Run the command. Returns 0, or 1 if it failed, or 130 after Ctrl-C."""
    from ..errors import HeadraceError
    from .group_commands import carry_out

    try:
        status = asyncio.run(carry_out(args))
        sys.stdout.flush()
    except HeadraceError as error:
        print(f"headrace group: {error}", file=sys.stderr)
        return 1
    except (
        BrokenPipeError
    ):  # the reader of our output has closed it; nor is there a use in flushing it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _verbs(kind: str) -> Iterable[Verb]:
    from .group_commands import VERBS

    return [verb for verb in VERBS if kind in verb.kinds]


def _plain() -> dict[str, Verb]:
    """The commands that are not told for which kind of group they are."""
    from .group_commands import PLAIN

    return {verb.names[0]: verb for verb in PLAIN}


def _meant(word: str, known: Iterable[str], accepted: Iterable[str] = ()) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"accepted are {', '.join(accepted or known)}"


def _add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        default="",
        metavar="URL",
        help="where to connect to (default: NATS_URL, the context's, or nats://127.0.0.1:4222)",
    )
    parser.add_argument(
        "--context",
        default="",
        metavar="NAME",
        help="a context of the nats tool (default: NATS_CONTEXT, or the selected one)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
