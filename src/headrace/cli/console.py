"""``headrace console``: the web page that shows a server."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

import click

from ..console import ConsoleServer, Settings
from ..console.settings import PORT_DEFAULT
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
    click.option("--monitoring", metavar="URL", default="", help="the server's monitoring port"),
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
    monitoring: str,
    jobs: str,
    read_only: bool,
    allow_host: tuple[str, ...],
    interval: float,
) -> None:
    """Show streams, messages, consumers, groups, buckets and jobs in the browser, until Ctrl-C.

    Only this machine reaches the page, unless --host says otherwise; then it asks for the password in
    HEADRACE_CONSOLE_PASSWORD. The admin token of a job service is read from HEADRACE_JOBS_ADMIN_TOKEN.
    """
    settings = Settings(
        host=host,
        port=port,
        password=os.environ.get(PASSWORD, ""),
        monitoring=monitoring,
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
    async with ConsoleServer(settings, session.connection, session.js) as server:
        print(f"Headrace console at {server.url}  (Ctrl-C ends it)", flush=True)
        await stop.wait()
