"""Commands of functions: options, connection, output.

::

    @online(click.argument("stream"), summary="…")
    async def info(session: Session, stream: str) -> None: ...

The function is handed a ``Session`` and its own parameters. Its docstring is the help. What it returns is the
exit status; None is 0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...errors import JetStreamApiError
from .. import loop_factory
from .asking import destroying_options
from .connection_options import CONNECTION, Where, connection_options, given_above, where
from .output import Output, output_options

if TYPE_CHECKING:
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
                        from .nearest import tell_nearest

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

    with asyncio.Runner(loop_factory=loop_factory() if fast else None) as runner:
        return runner.run(work)


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
