"""Commands of functions: options, connection, output.

::

    @online(click.argument("stream"), summary="…")
    async def info(session: Session, stream: str) -> None: ...

The function is handed a ``Session`` and its own parameters. Its docstring is the help. What it returns is the
exit status; None is 0.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...errors import JetStreamApiError
from .. import loop_factory
from ..commands import CommandEntry
from .asking import destroying_options
from .connection_options import CONNECTION, Where, connection_options, given_above, where
from .output import Output, output_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ...client import Connection, JetStream


Declare = Callable[[Any], Any]
"""What ``click.argument(…)`` and ``click.option(…)`` return."""

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """What a command works with.

    Attributes:
        connection: to the server.
        js: its JetStream context.
        output: where results go.
        where: how the connection was made, to make another.
    """

    connection: Connection
    js: JetStream
    output: Output
    where: Where


def online(
    *declare: Declare, name: str | None = None, destroys: bool = False, fast: bool = False
) -> Callable[[Callable[..., Awaitable[int | None]]], click.Command]:
    """Make a command of a coroutine function that needs a connection.

    Args:
        declare: its arguments and options, in order.
        name: the command's name, if it is not the function's.
        destroys: whether it takes ``--force`` and ``--dry-run``.
        fast: whether to use uvloop, if it is installed.
    """

    def make(function: Callable[..., Awaitable[int | None]]) -> click.Command:
        @click.pass_context
        @wraps(function)
        def callback(context: click.Context, /, **values: Any) -> int | None:
            place = where(given_above(context))
            own = own_values(values)
            output = output_above(context)
            if destroys:
                output.force, output.dry_run = own.pop("force"), own.pop("dry_run")

            async def run() -> int | None:
                async with connected(place, output) as session:
                    try:
                        return await function(session, **own)
                    except JetStreamApiError as error:
                        from .names import tell_nearest

                        await tell_nearest(session.js, own, error)
                        raise

            return run_loop(run(), fast=fast)

        extra = [*output_options(), *connection_options()]
        return command_of(function, callback, name, declare, extra, destroys)

    return make


def offline(
    *declare: Declare, name: str | None = None, destroys: bool = False
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a plain function ``f(output, …)`` that needs no connection."""

    def make(function: Callable[..., int | None]) -> click.Command:
        @click.pass_context
        @wraps(function)
        def callback(context: click.Context, /, **values: Any) -> int | None:
            own = {key: value for key, value in values.items() if key not in ("json", "yaml")}
            output = output_above(context)
            if destroys:
                output.force, output.dry_run = own.pop("force"), own.pop("dry_run")
            return function(output, **own)

        return command_of(function, callback, name, declare, output_options(), destroys)

    return make


def own_values(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a command's own parameters: not of the connection, nor of the output."""
    common = CONNECTION | {"json", "yaml"}
    return {key: value for key, value in values.items() if key not in common}


def output_above(context: click.Context) -> Output:
    """The output that is asked for, by the command or by a group above it."""
    asked = {"json": False, "yaml": False}
    here: click.Context | None = context
    while here is not None:
        for name in asked:
            asked[name] |= bool(here.params.get(name))
        here = here.parent
    return Output.of(**asked)


@asynccontextmanager
async def connected(place: Where, output: Output) -> AsyncIterator[Session]:
    """A session at this place, closed at the end."""
    from ...client import connect  # the help of a command does not need it

    context = place.context
    async with connect(context.servers, options=context.options) as connection:
        js = connection.jetstream(domain=context.domain, prefix=context.prefix)
        yield Session(connection, js, output, place)


def run_loop(work: Coroutine[Any, Any, T], *, fast: bool = False) -> T:
    """Run it on an event loop of its own. Ctrl-C cancels it and raises KeyboardInterrupt."""
    import asyncio

    before = signal.getsignal(signal.SIGINT)

    async def interruptible() -> T:
        loop, cancel = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
        if cancel is before or not callable(cancel):  # Ctrl-C is not the loop's
            return await work
        interrupts = 0

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupts
            interrupts += 1
            if interrupts > 1:
                raise KeyboardInterrupt
            # asyncio cancels where the signal hits it: between the look at a future and its result, too,
            # which the loop then reports as an error of its own. Between two callbacks it may.
            loop.call_soon_threadsafe(cancel, number, frame)

        signal.signal(signal.SIGINT, interrupt)
        try:
            return await work
        finally:
            signal.signal(signal.SIGINT, cancel)

    with asyncio.Runner(loop_factory=loop_factory() if fast else None) as runner:
        return runner.run(interruptible())


def command_of(
    function: Callable[..., object],
    callback: Callable[..., Any],
    name: str | None,
    declare: tuple[Declare, ...],
    options: list[click.Option],
    destroys: bool = False,
) -> click.Command:
    """The command; ``function`` has its name and its help, ``callback`` runs it."""
    for decorate in reversed(declare):
        callback = decorate(callback)
    own: list[click.Parameter] = list(reversed(getattr(callback, "__click_params__", [])))
    return click.Command(
        name or function.__name__.rstrip("_").replace("_", "-"),
        callback=callback,
        params=[*own, *(destroying_options() if destroys else []), *options],
        help=function.__doc__,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


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
    from ..commands import elsewhere

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
