"""``headrace worker app:worker``: run what a program handles, until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import ConfigurationError
from .shared.connection_options import Where, connection_options, given_above, where
from .shared.output import Output
from .shared.units import DURATION
from .shared.verbs import command_of, output_above, own_values, run_loop

if TYPE_CHECKING:
    from ..worker.running import Pages, Running

LEVELS: Final = ("debug", "info", "warning", "error")
_INNER: Final = "HEADRACE_WORKER_RELOADED"  # set for the program that --reload runs
_OPTIONS: Final = (
    click.argument("app", metavar="MODULE:WORKER"),
    click.option(
        "--stop-timeout",
        type=DURATION,
        default=25.0,
        help="how long handlers may take to end after SIGTERM (25s)",
    ),
    click.option(
        "--http",
        metavar="[HOST:]PORT",
        default="",
        help="serve /healthz, /readyz and /metrics there",
    ),
    click.option("--reload", is_flag=True, help="start anew when a Python file here changes"),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="of log lines (text)",
    ),
    click.option(
        "--log-level", type=click.Choice(LEVELS), default="info", help="what is logged (info)"
    ),
)


def run_worker(
    place: Where,
    output: Output,
    servers_typed: bool,
    *,
    app: str,
    stop_timeout: float,
    http: str,
    reload: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Run the worker of a program: its consumers and groups, until SIGTERM or Ctrl-C.

    MODULE:WORKER names a headrace.worker.Worker, as app:worker. Told to end, it begins no message any more,
    lets those end that are being handled, and gives back the rest at once. The second signal ends it at once.
    The status is 1 where it cannot go on: a consumer is gone, or a failure policy says stop.
    """
    log_as(log_format, log_level)
    if reload and not os.environ.get(_INNER):
        run_loop(_anew(stop_timeout))
        return
    from ..worker.app import load

    worker = load(app)
    servers = place.servers if servers_typed or not worker.servers else worker.servers
    run_loop(_run(worker, place, servers, stop_timeout, http), fast=True)


async def _run(worker: Any, place: Where, servers: str, stop_timeout: float, http: str) -> None:
    from ..client import Options
    from ..worker import run
    from ..worker.running import Pages

    context = place.context
    beside: list[Callable[[Running], Pages]] = []
    if http:
        host, port = address_of(http)
        beside.append(lambda running: Pages(running, host=host, port=port))
    usual = Options()
    options = replace(
        context.options,
        name="" if context.options.name == "headrace" else context.options.name,
        delivery_timeout=max(usual.delivery_timeout, place.timeout),
    )
    await run(
        worker,
        until_signalled(),
        servers=servers,
        options=options,
        domain=context.domain,
        prefix=context.prefix,
        stop_timeout=stop_timeout,
        beside=beside,
    )


async def _anew(stop_timeout: float) -> None:
    from ..worker.reloading import run_anew

    os.environ[_INNER] = "1"
    command = [sys.executable, "-m", "headrace", *sys.argv[1:]]
    await run_anew(command, [Path.cwd()], until_signalled(), stop_timeout=stop_timeout + 5)


def until_signalled() -> asyncio.Event:
    """Set by SIGTERM or Ctrl-C; the next one does what it does anywhere."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def end() -> None:
        over.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    return over


def address_of(text: str) -> tuple[str, int]:
    """``8080`` or ``0.0.0.0:8080``. Raises ConfigurationError."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(
            f"--http {text!r}; accepted is a port, or host:port, as 0.0.0.0:8080"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def log_as(form: str, level: str) -> None:
    """Log lines go to stderr. Those of a handler name its message where the format has fields."""
    from ..worker.current import OfMessage

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OfMessage())
    if form == "json":
        from ..json_logs import JsonFormatter

        handler.setFormatter(JsonFormatter({"pid": os.getpid()}))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=getattr(logging, level.upper()), force=True)


@click.pass_context
def _callback(context: click.Context, /, **values: Any) -> None:
    given = given_above(context)
    typed = "server" in given or "context" in given or bool(os.environ.get("NATS_URL"))
    run_worker(where(given), output_above(context), typed, **own_values(values))


worker = command_of(run_worker, _callback, "worker", _OPTIONS, connection_options())
