"""``headrace console``: the web page that shows a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Final

import click

from ..client import JetStream, connect
from ..console import ConsoleServer, OtherServer, Settings
from ..console.settings import PORT_DEFAULT
from ..errors import ConfigurationError
from .context import Contexts, complete_contexts
from .shared.connection_options import Where, where
from .shared.errors import Failure
from .shared.units import DURATION
from .shared.verbs import Session, online

PASSWORD: Final = "HEADRACE_CONSOLE_PASSWORD"  # noqa: S105 (the variable's name)
JOBS_TOKEN: Final = "HEADRACE_JOBS_ADMIN_TOKEN"  # noqa: S105 (the variable's name)


@online(
    click.option(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (127.0.0.1)"
    ),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=PORT_DEFAULT,
        help=f"port of the page ({PORT_DEFAULT}; 0: any free one)",
    ),
    click.option(
        "--also",
        multiple=True,
        metavar="CONTEXT",
        shell_complete=complete_contexts,
        help="another server to show; repeatable",
    ),
    click.option("--contexts", is_flag=True, help="show the servers of all contexts"),
    click.option(
        "--monitoring",
        multiple=True,
        metavar="URL",
        help="the server's monitoring port; CONTEXT=URL of another server; repeatable",
    ),
    click.option("--jobs", metavar="URL", default="", help="a job service to show, too"),
    click.option("--read-only", is_flag=True, help="without anything that changes something"),
    click.option(
        "--allow-host",
        multiple=True,
        metavar="NAME",
        help="a name of a proxy before it; repeatable",
    ),
    click.option("--interval", type=DURATION, default=2.0, help="time between two looks (2s)"),
)
async def console(
    session: Session,
    host: str,
    port: int,
    also: tuple[str, ...],
    contexts: bool,
    monitoring: tuple[str, ...],
    jobs: str,
    read_only: bool,
    allow_host: tuple[str, ...],
    interval: float,
) -> None:
    """Show streams, messages, consumers, groups, buckets and jobs in the browser, until Ctrl-C.

    \b
    headrace console
    headrace console --context prod --also staging --also lab

    Only this machine reaches the page, unless --host says otherwise; then it asks for the password in
    HEADRACE_CONSOLE_PASSWORD. The admin token of a job service is read from HEADRACE_JOBS_ADMIN_TOKEN.
    """
    own = _own_name(session.where)
    ports = _monitoring(monitoring)
    others = [each for each in _others(also, contexts) if each != own]
    unknown = ports.keys() - {"", own, *others}
    if unknown:
        raise Failure(f"--monitoring: no server {min(unknown)!r} is shown; --also shows another")
    settings = Settings(
        name=own,
        host=host,
        port=port,
        password=os.environ.get(PASSWORD, ""),
        monitoring=ports.get("", "") or ports.get(own, ""),
        jobs=jobs,
        jobs_token=os.environ.get(JOBS_TOKEN, ""),
        read_only=read_only,
        allowed_hosts=allow_host,
        interval_s=interval,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    other_servers = [_other(each, session.where.timeout, ports.get(each, "")) for each in others]
    async with ConsoleServer(
        settings, session.connection, session.js, others=other_servers
    ) as server:
        print(f"Headrace console at {server.url}  (Ctrl-C ends it)", flush=True)
        await stop.wait()


def _own_name(place: Where) -> str:
    """The context of the server we are connected to; "" where an option or a variable leads elsewhere."""
    name = place.context.name
    try:
        said = where({"context": name}, _without_variables()).servers if name else ""
    except ConfigurationError:
        return ""  # a context without a server: the options alone have said it
    return name if said == place.servers else ""


def _without_variables() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}


def _monitoring(given: tuple[str, ...]) -> dict[str, str]:
    """URLs of monitoring ports by context; "" is the server the command connects to."""
    found: dict[str, str] = {}
    for text in given:
        name, said, url = text.partition("=")
        if not said or "://" in name:  # an equals sign of the URL's own
            name, url = "", text
        if not url.startswith(("http://", "https://")):
            raise Failure(
                f"--monitoring {text!r}; accepted: http://HOST:PORT or CONTEXT=http://HOST:PORT"
            )
        found[name] = url
    return found


def _others(also: tuple[str, ...], every: bool) -> list[str]:
    """The contexts of the other servers, each once. Raises Failure for one that is not there."""
    contexts = Contexts()
    for name in also:
        contexts.read(name)
    return list(dict.fromkeys((*also, *(contexts.names() if every else ()))))


def _other(name: str, timeout: float, monitoring: str) -> OtherServer:
    @contextlib.asynccontextmanager
    async def connect_there() -> AsyncIterator[JetStream]:
        # Read when it is wanted, so that a context that is changed counts at once. Variables such as NATS_URL
        # say where the first server is, and nothing of this one.
        context = where({"context": name, "timeout": timeout}, _without_variables()).context
        async with connect(context.servers, options=context.options) as connection:
            yield connection.jetstream(domain=context.domain, prefix=context.prefix)

    return OtherServer(name=name, connect=connect_there, monitoring=monitoring)
