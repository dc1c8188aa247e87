"""The flags of nats-server, in any spelling, and those that have no effect here.

nats-server reads flags with one dash or two (``-port``, ``--p``), takes values after ``=``, and switches
with ``=true`` or ``=false``. ``spell`` turns all of these into what our parser accepts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ..._version import __version__
from ...broker.core.options import COMPATIBLE_VERSION
from ...broker.server import Broker, BrokerOptions
from ...broker.server.machine import raise_limit
from ...errors import ConfigurationError, HeadraceError
from ...files import SHARED, write_whole
from .. import NATS_SERVER, loop_factory, program_name
from ..shared.process import tell_manager, tune_collector
from .config import FileSettings, add_flags, broker_options, given_flags, read_file
from .log import reopen_log, set_up_logging

__all__ = ["add_arguments", "run", "spell"]


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


@contextmanager
def told_by_files(
    broker: Broker, ports_directory: str | None, pid_file: str | None
) -> Iterator[None]:
    """The files exist while the broker runs. Raises ConfigurationError if they cannot be written."""
    with ExitStack() as stack:
        for path in (_write_pid(pid_file), _write_ports(broker, ports_directory)):
            if path is not None:
                stack.callback(path.unlink, missing_ok=True)
        yield


def _write_pid(name: str | None) -> Path | None:
    return None if name is None else _write(Path(name), str(os.getpid()), "pid_file")


def _write_ports(broker: Broker, directory: str | None) -> Path | None:
    """``headrace_<pid>.ports``, for harnesses that let the server choose its ports.

    If the program is called ``nats-server``, the file has the name that such a harness expects.
    """
    if directory is None:
        return None
    import json  # most starts need it not

    document: dict[str, Any] = {"nats": [broker.client_url]}
    if broker.monitor_url is not None:
        document["monitoring"] = [broker.monitor_url]
    if broker.websocket_url is not None:
        document["websocket"] = [broker.websocket_url]
    path = Path(directory) / f"{program_name()}_{os.getpid()}.ports"
    return _write(path, json.dumps(document), "ports_file_dir")


def _write(path: Path, text: str, setting: str) -> Path:
    try:
        write_whole(path, text, SHARED)
    except OSError as error:
        raise ConfigurationError(f"{setting}: cannot write {path}: {error.strerror}") from error
    return path


_SIGNALS: Final = {
    "ldm": signal.SIGUSR2,
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
}


def send_signal(request: str) -> None:
    """Send the signal in ``<signal>=<pid>`` or ``<signal>=<file with the pid>``.

    Raises ConfigurationError for an unknown signal, and for a process that is not named or does not exist.
    """
    name, equals, target = request.partition("=")
    if name not in _SIGNALS:
        raise ConfigurationError(f"--signal: {name!r}; accepted are {', '.join(_SIGNALS)}")
    if not equals or not target:
        raise ConfigurationError(
            f"--signal: whom to tell is missing; accepted is {name}=<pid> or {name}=<pid file>"
        )
    pid = _pid(target)
    try:
        os.kill(pid, _SIGNALS[name])
    except OSError as error:
        raise ConfigurationError(f"--signal: process {pid}: {error.strerror}") from error


def _pid(target: str) -> int:
    text = target
    if not target.isdecimal():
        try:
            text = Path(target).read_text(encoding="ascii").strip()
        except OSError as error:
            raise ConfigurationError(f"--signal: {target}: {error.strerror}") from error
        except UnicodeDecodeError:
            text = ""
    if not text.isdecimal() or int(text) <= 1:
        raise ConfigurationError(f"--signal: {target}: no process id, nor a file that has one")
    return int(text)


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
