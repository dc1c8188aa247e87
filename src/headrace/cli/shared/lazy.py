"""A group of commands whose modules are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

import click

from ..commands import CommandEntry
from .connection_options import connection_options
from .output import output_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_ROOM = __package__.rpartition(".")[0]


class LazyGroup(click.Group):
    """Commands by name. It takes the connection options too, for the commands below it.

    Args:
        name: its own name.
        verbs: its commands.
        summary: what it is for.
        what: what its commands are called.

    Attributes:
        connection: how its commands are told where to connect, for the help.
    """

    connection = (
        "Every command takes --server, --context, --user, --password, --creds, --timeout and "
        "more; NATS_URL and the contexts of the nats tool are honoured."
    )

    def __init__(
        self, name: str, verbs: Mapping[str, CommandEntry], summary: str, what: str = "command"
    ) -> None:
        super().__init__(
            name,
            help=summary,
            no_args_is_help=False,
            invoke_without_command=True,
            callback=_help_without_a_command,
            params=[*output_options(hidden=True), *connection_options(hidden=True)],
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
            subcommand_metavar="COMMAND …",
        )
        self.verbs = dict(verbs)
        self._what = what

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, verb in self.verbs.items() if verb.uses_click]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name, verb in self.verbs.items():
            if verb.uses_click and (cmd_name == name or cmd_name in verb.aliases):
                return _command(name, verb)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = self.get_command(ctx, args[0])
        if found is None and not ctx.resilient_parsing and not args[0].startswith("-"):
            known = [
                *self.verbs,
                *(alias for verb in self.verbs.values() for alias in verb.aliases),
            ]
            if args[0] in self.verbs:
                raise click.UsageError(f"{args[0]!r} takes its options behind its name", ctx)
            meant = _elsewhere(ctx, args)
            if meant:
                raise click.UsageError(meant, ctx)
            near = get_close_matches(args[0], known, 1)
            meant = (
                f"did you mean {near[0]!r}?" if near else f"accepted are {', '.join(self.verbs)}"
            )
            raise click.UsageError(f"no {self._what} {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (", ".join((name, *verb.aliases[:1])), verb.summary)
            for name, verb in self.verbs.items()
            if verb.uses_click
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        with formatter.section("Connection"):
            formatter.write_text(self.connection)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=verb.summary)
            for name, verb in self.verbs.items()
            if name.startswith(incomplete)
        ] + click.Command.shell_complete(self, ctx, incomplete)


def _elsewhere(context: click.Context, args: list[str]) -> str:
    from .nats_names import elsewhere

    above: list[str] = []
    here: click.Context | None = context
    while here is not None and here.parent is not None:  # by their names: aliases are not looked up
        above.insert(0, here.command.name or "")
        here = here.parent
    return elsewhere([*above, *(word for word in args if not word.startswith("-"))])


def _command(name: str, entry: CommandEntry) -> click.Command:
    if entry.verbs:
        return LazyGroup(name, entry.verbs, f"{entry.summary[0].upper()}{entry.summary[1:]}.")
    if isinstance(entry.target, click.Command):
        return entry.target
    module, _, attribute = entry.target.partition(":")
    command: click.Command = getattr(import_module(f"{_ROOM}.{module}"), attribute)
    return command


@click.pass_context
def _help_without_a_command(context: click.Context, /, **_options: object) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
