"""The flags of nats-server, in any spelling, and those that have no effect here.

nats-server reads flags with one dash or two (``-port``, ``--p``), takes values after ``=``, and switches
with ``=true`` or ``=false``. ``spell`` turns all of these into what our parser accepts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

_IGNORED: Final = (
    "cluster", "cluster_advertise", "cluster_listen", "cluster_name", "connect_retries",
    "no_advertise", "routes", "client_advertise", "log_size_limit", "profile",
    "r", "remote_syslog",
)  # fmt: skip
_IGNORED_SWITCHES: Final = ("s", "syslog")
_ON: Final = frozenset(("true", "t", "1"))
_OFF: Final = frozenset(("false", "f", "0"))
_DEST: Final = "ignored_flags"


def add_ignored_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that only cost a convenience here; each causes a warning if it is given."""
    for name in _IGNORED:
        parser.add_argument(_long(name), dest=_DEST, action=_Ignored, help=argparse.SUPPRESS)
    for name in _IGNORED_SWITCHES:
        parser.add_argument(
            _long(name), dest=_DEST, action=_Ignored, nargs=0, help=argparse.SUPPRESS
        )


def ignored_flags(args: argparse.Namespace) -> list[str]:
    """A warning for each of them that was given."""
    return [f"{flag}: not supported, ignored" for flag in getattr(args, _DEST, None) or ()]


class _Ignored(argparse.Action):
    """Remembers that the flag was given, but not its value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        given = getattr(namespace, self.dest, None) or []
        setattr(namespace, self.dest, [*given, option_string])


def _long(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name}"


def spell(arguments: Iterable[str], parser: argparse.ArgumentParser) -> list[str]:
    """The arguments as the parser accepts them; an unknown flag ends the process as the parser does."""
    actions = {
        flag.lstrip("-"): (flag, action)
        for action in parser._actions
        for flag in reversed(action.option_strings)
    }
    spelt: list[str] = []
    awaiting = ""
    for argument in arguments:
        if awaiting:
            spelt.append(f"{awaiting}={argument}")
            awaiting = ""
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        found = actions.get(name) if argument.startswith("-") else None
        if found is None:
            if argument.startswith("-"):
                from difflib import get_close_matches

                near = get_close_matches(name, actions, 1) if len(name) > 2 else []
                meant = (
                    f"did you mean {actions[near[0]][0]}?"
                    if near
                    else "--help lists those there are"
                )
                parser.error(f"no flag {argument.partition('=')[0]}; {meant}")
            spelt.append(argument)
            continue
        flag, action = found
        if action.nargs != 0:
            awaiting = "" if equals else flag
            spelt += [f"{flag}={value}"] if equals else []
        elif not equals or value.lower() in _ON:
            spelt.append(flag)
        elif value.lower() not in _OFF:
            parser.error(f"{argument}: accepted after '=' are true and false")
        elif f"off-{action.dest}" in actions:
            spelt.append(f"--off-{action.dest}")
    return [*spelt, awaiting] if awaiting else spelt
