"""Make a broker of flags and files, run it, and stop it when a signal says so."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ..._version import __version__
from ...broker.core.options import COMPATIBLE_VERSION
from ...broker.server import Broker, BrokerOptions
from ...broker.server.machine import raise_limit
from ...errors import HeadraceError
from .. import NATS_SERVER, loop_factory, program_name
from ..shared.collector import tune_collector
from ..shared.notify import tell_manager
from .config import add_flags, broker_options, given_flags, read_file
from .files import told_by_files
from .flags import add_ignored_flags, ignored_flags, spell
from .log import reopen_log, set_up_logging
from .settings import FileSettings
from .signal import send_signal

__all__ = ["add_arguments", "run", "spell"]

logger = logging.getLogger("headrace.serve")

SWITCH_INTERVAL_S: Final = 0.0005
LAME_DUCK_S: Final = 2.0  # how long clients have to reconnect elsewhere after the announcement


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags a NATS user types, and Headrace's own."""
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="configuration file: TOML, or nats-server's format"
    )
    add_flags(parser)
    parser.add_argument(
        "-DV", "-VV", "-DVV", dest="debug_and_trace", action="store_true", help="-D and -V"
    )
    parser.add_argument(
        "-t", dest="only_check", action="store_true", help="check the settings and exit"
    )
    parser.add_argument(
        "-sl",
        "--signal",
        metavar="SIGNAL=PID",
        help="signal a running broker, given its pid or pid file: reload, reopen, ldm, term, quit, stop",
    )
    add_ignored_flags(parser)
    parser.add_argument("-v", "--version", action="version", version=_version())


def _version() -> str:
    """As nats-server says it, if that is the name we were called by."""
    if program_name() == NATS_SERVER:
        return f"nats-server: v{COMPATIBLE_VERSION}"
    return f"headrace {__version__}"


def run(args: argparse.Namespace) -> int:
    """Serve, or check the settings. Returns 0 on success, 1 for an error in the settings or the store."""
    set_up_logging(
        debug=bool(args.debug or args.debug_and_trace), as_json=args.log_format == "json"
    )
    try:
        if args.signal is not None:
            send_signal(args.signal)
            return 0
        values, warnings = _settings(args)
        if not args.only_check:
            _log_as_wanted(values, args)
        _warn(warnings)
        options = broker_options(values)
        if args.only_check:
            _check(options)
            return 0
        raise_limit()
        # A commit waits for the interpreter several times. With Python's default of 5 ms for each, beside a
        # busy event loop every client would wait ten times as long for it as for the disk.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(options, values, args))
    except HeadraceError as error:
        logger.critical("%s", error)
        return 1
    return 0


def _check(options: BrokerOptions) -> None:
    """Check what can be checked without listening. Raises ConfigurationError."""
    options.check()
    for tls in (options.tls, options.websocket.tls if options.websocket is not None else None):
        if tls is not None:
            tls.context()
    logger.info("The settings are valid")


def _without_file() -> FileSettings:
    """What holds where only flags are given: called nats-server, no streams unless asked for, as there."""
    if program_name() != NATS_SERVER:
        return FileSettings()
    text = "called nats-server without -js, so no streams are served; -js serves them"
    return FileSettings(values={"jetstream": False}, assumed={"jetstream": text})


def _settings(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The settings of the file and the flags, and warnings; flags override. Raises ConfigurationError."""
    found = read_file(Path(args.config), os.environ) if args.config else _without_file()
    flags = given_flags(args)
    assumed = [text for key, text in found.assumed.items() if key not in flags]
    return {**found.values, **flags}, [*assumed, *found.warnings, *ignored_flags(args)]


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        logger.warning("%s", warning)


async def _serve(options: BrokerOptions, values: dict[str, Any], args: argparse.Namespace) -> None:
    stop = asyncio.Event()
    lame_duck = asyncio.Event()
    tune_collector()
    hangups = _handle_signals(stop, lame_duck)
    logger.info("Starting headrace")
    logger.info(
        "  Version:  %s (serves clients like nats-server %s)", __version__, COMPATIBLE_VERSION
    )
    broker = Broker(options)
    async with broker:
        _say_where(broker)
        async with contextlib.AsyncExitStack() as beside:
            if "console" in values:
                from .console import console_beside

                url = await beside.enter_async_context(console_beside(broker, values["console"]))
                logger.info("Console at %s", url)
            beside.enter_context(
                told_by_files(broker, values.get("ports_file_dir"), values.get("pid_file"))
            )
            logger.info("Server is ready")
            hangups.append(lambda: _reload(broker, values, args))
            tell_manager("READY=1", f"STATUS=serving at {broker.client_url}")
            await stop.wait()
            tell_manager("STOPPING=1")
            if lame_duck.is_set():
                broker.announce_stop()
                await asyncio.sleep(values.get("lame_duck_duration", LAME_DUCK_S))
            logger.info("Initiating Shutdown...")
    logger.info("Server Exiting..")


def _say_where(broker: Broker) -> None:
    options = broker.options
    if options.jetstream and options.store_dir is None:
        logger.warning("Streams live in memory and end with this process; -sd DIR keeps them")
    elif options.jetstream:
        logger.info("Store Directory: %s (sync %s)", options.store_dir, options.sync)
    logger.info("headrace %s at %s", __version__, broker.client_url)


def _reload(broker: Broker, values: dict[str, Any], args: argparse.Namespace) -> None:
    """Read the file again and apply it; a file with an error changes nothing."""
    if not args.config:
        logger.warning("Trapped hangup: no configuration file was given, nothing is reloaded")
        return
    logger.info('Trapped "hangup" signal: reading %s again', args.config)
    try:
        new, warnings = _settings(args)
        _log_as_wanted(new, args)
        left = broker.reload(broker_options(new))
    except HeadraceError as error:
        _log_as_wanted(values, args)
        logger.error("Nothing was reloaded: %s", error)
        return
    _warn(warnings)
    left += [
        key for key in ("console", "ports_file_dir", "pid_file") if new.get(key) != values.get(key)
    ]
    values.clear()
    values.update(new)
    if left:
        logger.warning("Changed, but in need of a restart: %s", ", ".join(left))
    logger.info("Reloaded server configuration")


def _log_as_wanted(values: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Raises ConfigurationError if the log file cannot be written."""
    set_up_logging(
        debug=bool(values.get("debug") or args.debug_and_trace),
        trace=bool(values.get("trace") or args.debug_and_trace),
        traced_bytes=values.get("max_traced_msg_len"),
        file=values.get("log_file"),
        time=values.get("logtime", True),
        utc=values.get("logtime_utc", False),
        as_json=values.get("log_format") == "json",
    )


def _reopen_log() -> None:
    if reopen_log():
        logger.info("File log re-opened")
    else:
        logger.warning("File log re-opening ignored, not a file logger")


def _handle_signals(stop: asyncio.Event, lame_duck: asyncio.Event) -> list[Callable[[], None]]:
    """Returns the list of actions for a SIGHUP; it is filled once there is something to reload."""
    hangups: list[Callable[[], None]] = []
    loop = asyncio.get_running_loop()

    def stop_or_force(name: str) -> None:
        if stop.is_set():
            logger.warning('Trapped "%s" signal again: exiting at once', name)
            os._exit(1)
        logger.info('Trapped "%s" signal', name)
        stop.set()

    def stop_like_a_lame_duck() -> None:
        logger.info("Entering lame duck mode")
        lame_duck.set()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, stop_or_force, "interrupt")
    loop.add_signal_handler(signal.SIGTERM, stop_or_force, "terminated")
    loop.add_signal_handler(signal.SIGUSR2, stop_like_a_lame_duck)
    loop.add_signal_handler(signal.SIGUSR1, _reopen_log)

    def hang_up() -> None:
        if not hangups:
            logger.warning("Trapped hangup while starting: nothing is reloaded, send it again")
        for reload in hangups:
            reload()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    return hangups
