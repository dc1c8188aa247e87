"""One process of the service: HTTP, push, maintenance, feeds; started, drained, stopped.

What a running one takes of a changed configuration, and what needs a restart, is decided here, too. Begin
with ``serve``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigurationError, HeadraceError
from ..web.asgi import AsgiServer
from ..web.connections import ConnectionLimits
from . import limits
from .archive import Archive
from .config import Config
from .http import create_app
from .http.asgi import Gateway
from .maintenance import Maintenance
from .models import Options
from .push.engine import PushEngine
from .runtime.runtime import Runtime
from .seeds import Left, Seeds, apply_seeds, left_over
from .service import auditing
from .service.retention import Keep
from .store import Tx, open_database

__all__ = [
    "RELOADED",
    "DescriptorShares",
    "Reloader",
    "apply_definitions",
    "descriptor_shares",
    "keep_of",
    "make_maintenance",
    "make_runtime",
    "needs_restart",
    "serve",
    "tell_of_loop",
]


_DAY_S: Final = 86_400.0
_APPLIED: Final = auditing.AuditNote(
    who="configuration", action="apply definitions", object="producers, channels and consumers"
)
RELOADED: Final = frozenset(
    {
        *("max_retries", "retry_delays_seconds", "rational_delay_seconds"),
        *("connection_timeout_seconds", "schedule_min_delay_seconds", "payload_bytes_max"),
        *("token_header", "user_agent", "allow_networks", "https_only", "admin_token"),
        *("tls", "keep_messages_days", "keep_dead_days", "keep_attempts_days", "keep_audit_days"),
        *("producers", "channels"),
    }
)


def keep_of(config: Config) -> Keep:
    """Read how long data is kept."""

    def seconds(days: float | None) -> float | None:
        return None if days is None else days * _DAY_S

    return Keep(
        messages_s=seconds(config.keep_messages_days),
        dead_s=seconds(config.keep_dead_days),
        attempts_s=seconds(config.keep_attempts_days),
        audit_s=seconds(config.keep_audit_days),
    )


def needs_restart(before: Config, after: Config) -> list[str]:
    """The settings that differ, and that a running service cannot change."""
    differing = [
        name
        for name in Config.__struct_fields__
        if name not in RELOADED and getattr(before, name) != getattr(after, name)
    ]
    if (before.tls is None) != (after.tls is None):
        differing.append("tls")
    if bool(before.admin_token) != bool(after.admin_token):
        differing.append(
            "admin_token"
        )  # from where requests may come hangs on whether there is one
    return sorted(differing)


async def apply_definitions(runtime: Runtime, config: Config, options: Options) -> None:
    """Apply the producers, channels and consumers of ``config``, and log those that are in it no more.

    Raises ConfigurationError, and JobsError if the database is away; then nothing was changed.
    """
    seeds = Seeds.read({"producers": config.producers, "channels": config.channels})

    def write(tx: Tx) -> tuple[bool, list[Left]]:
        is_new = apply_seeds(tx, seeds, options, tx.now_us())
        if is_new:
            auditing.note(tx, _APPLIED, tx.now_us())
        return is_new, left_over(tx)

    is_new, left = await runtime.database.write(write)
    if is_new and (seeds.producers or seeds.channels):
        _LOG.info("definitions of the configuration applied")
    for one in left:
        _LOG.warning("%s", one.sentence())


class Reloader:
    """Reads the configuration again on each :meth:`ask`, one after the other."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        read: Callable[[], Config] | None,
        maintenance: Maintenance,
        engine: PushEngine | None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._read = read
        self._maintenance = maintenance
        self._engine = engine
        self._context = context
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Read it again as soon as possible."""
        self._asked.set()

    async def run(self) -> None:
        """Serve until cancelled. A configuration with mistakes changes nothing, and is logged."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.reload()
            except HeadraceError as error:
                _LOG.error("the configuration is not in force, and nothing has changed: %s", error)
            except Exception as error:  # a mistake in a file must not end what runs
                _LOG.error("the configuration is not read again", exc_info=error)

    async def reload(self) -> None:
        """Read it, check it, apply the definitions, then the settings.

        Raises ConfigurationError, and JobsError if the database is away; then nothing was changed.
        """
        if self._read is None:
            _LOG.warning("there is no configuration to read again: the service has no --config")
            return
        config = await asyncio.to_thread(self._read)
        options = config.options()
        tls = config.tls if self._context is not None else None
        if tls is not None:
            tls.context()  # a certificate that cannot be used changes nothing
        await apply_definitions(self._runtime, config, options)
        left_alone = needs_restart(self._config, config)
        if tls is not None and self._context is not None:
            tls.load(self._context)
        self._runtime.options = options
        if "admin_token" not in left_alone:
            self._runtime.admin_token = config.admin_token or None
        self._maintenance.keep(keep_of(config))
        if self._engine is not None:
            self._engine.guard(options)
        kept = {name: getattr(self._config, name) for name in left_alone}
        self._config = _replaced(config, kept)
        _LOG.info("the configuration was read again")
        if left_alone:
            _LOG.warning("changed, but in force only after a restart: %s", ", ".join(left_alone))


def _replaced(config: Config, kept: dict[str, object]) -> Config:
    values = {name: getattr(config, name) for name in Config.__struct_fields__}
    return Config(**{**values, **kept})


_LOG: Final = logging.getLogger("headrace.jobs")
_TLS_MESSAGE: Final = "Fatal error on SSL protocol"  # uvloop's


def make_runtime(config: Config) -> Runtime:
    """The runtime for ``config``, not yet started."""
    return Runtime(
        open_database(config.database, threads=config.database_threads, vault=config.vault()),
        config.options(),
        admin_token=config.admin_token or None,
    )


def make_maintenance(runtime: Runtime, config: Config) -> Maintenance:
    """Retention and other maintenance, as configured."""
    archive = None
    if config.archive_directory:
        archive = Archive(Path(config.archive_directory), runtime.node)
    return Maintenance(runtime, keep_of(config), archive)


async def serve(
    config: Config,
    ready: Callable[[str], None],
    read_again: Callable[[], Config] | None = None,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM, then drain; a second signal ends at once.

    SIGHUP calls ``read_again``, and what it returns is in force from then on, as far as that is possible
    without a restart (:mod:`.reload`); without it, SIGHUP is only logged.

    ``ready`` receives the address as soon as requests are answered, ``stopping`` is called when draining
    begins. Draining accepts no new connection,
    answers waiting claims, finishes push calls in progress and stores their results, within
    ``drain_seconds``.
    """
    asyncio.get_running_loop().set_exception_handler(tell_of_loop)
    runtime = make_runtime(config)
    context = None if config.tls is None else config.tls.context()
    listener = _listen(config)
    with listener:
        await runtime.start()
        try:
            await apply_definitions(runtime, config, runtime.options)
            await _serve_on(runtime, config, listener, context, ready, read_again, stopping)
        finally:
            await runtime.close()


def tell_of_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop could tell nobody.

    An endpoint's handshake that fails after its call was given up is no defect: the call's outcome is stored.
    uvloop tells of it by the exception, or by an error of its own about a connection that is closed.
    """
    error = context.get("exception")
    if isinstance(error, ssl.SSLError) or context.get("message") == _TLS_MESSAGE:
        _LOG.debug("a TLS connection ended after its call: %s", error)
    else:
        loop.default_exception_handler(context)


def _listen(config: Config) -> socket.socket:
    try:
        return socket.create_server(
            (config.host, config.port),
            family=socket.AF_INET6 if ":" in config.host else socket.AF_INET,
            backlog=1024,
        )
    except OSError as error:
        raise ConfigurationError(
            f"{config.host}:{config.port}: {error.strerror or error}"
        ) from None


async def _serve_on(
    runtime: Runtime,
    config: Config,
    listener: socket.socket,
    context: ssl.SSLContext | None,
    ready: Callable[[str], None],
    read_again: Callable[[], Config] | None,
    stopping: Callable[[], None],
) -> None:
    shares = descriptor_shares(push=config.push)
    server = _make_server(runtime, config, context, shares.connections)
    engine = None
    if config.push:
        engine = PushEngine(runtime, calls_max=shares.calls, idle_max=shares.idle)
    maintenance = make_maintenance(runtime, config)
    reloader = Reloader(runtime, config, read_again, maintenance, engine, context)
    tasks = [
        asyncio.create_task(maintenance.run(), name="jobs-maintenance"),
        asyncio.create_task(reloader.run(), name="jobs-reload"),
    ]
    tasks += _stream_tasks(runtime, config)
    push = asyncio.create_task(engine.run(), name="jobs-push") if engine is not None else None

    def drain() -> None:
        if server.should_exit:
            server.force_exit = True
            if push is not None:
                push.cancel()
            return
        server.should_exit = True
        stopping()
        runtime.draining.set()
        runtime.waiters.ring(())
        if engine is not None:
            engine.stop()

    with _signals(drain, reloader.ask):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        scheme = "http" if context is None else "https"
        ready(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")
        watched = [serving, *tasks, *([push] if push is not None else [])]
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if not server.should_exit:  # a second time would end what was told to end in peace
                drain()
            await serving
            if push is not None and not server.force_exit:
                await asyncio.wait([push], timeout=config.drain_seconds)
            await maintenance.resign()
        finally:
            for task in watched:
                task.cancel()
            ended = await asyncio.gather(*watched, return_exceptions=True)
    _raise_defects(done, ended)


def _make_server(
    runtime: Runtime, config: Config, context: ssl.SSLContext | None, connections_max: int
) -> AsgiServer:
    gateway = None
    if config.gateway is not None:
        gateway = Gateway(
            config.gateway.secrets,
            tolerance_s=config.gateway.tolerance_seconds,
            exempt=config.gateway.exempt,
            v2_only=config.gateway.v2_only,
        )
    return AsgiServer(
        create_app(runtime, gateway, config.names()),
        ConnectionLimits(connections_max),
        tls=context,
        drain_s=config.drain_seconds,
    )


@dataclass(frozen=True, slots=True)
class DescriptorShares:
    """Shares of the open files: for HTTP connections, calls of push, and connections of push besides."""

    connections: int
    calls: int
    idle: int


def descriptor_shares(*, push: bool) -> DescriptorShares:
    """Raise the limit of open files as far as needed and allowed, and share what it is.

    What is less than needed is taken from all by the same part, but from the reserve only below twice that.
    """
    wanted = [limits.CONNECTIONS_MAX]
    if push:
        wanted += [limits.PUSH_CALLS_MAX, limits.PUSH_CONNECTIONS_IDLE_MAX]
    total = sum(wanted) + limits.DESCRIPTORS_KEPT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < total:
        soft = total if hard == resource.RLIM_INFINITY else min(total, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < total:
            left = soft - min(limits.DESCRIPTORS_KEPT, soft // 2)
            wanted = [max(1, left * each // sum(wanted)) for each in wanted]
            _LOG.warning(
                "%d HTTP connections and %d push calls at most: the system allows %d open files",
                wanted[0],
                wanted[1] if push else 0,
                soft,
            )
    connections, calls, idle = wanted if push else [*wanted, 0, 0]
    return DescriptorShares(connections, calls, idle)


def _raise_defects(done: set[asyncio.Task[None]], ended: list[Any]) -> None:
    """A part that fails with an error ends the process with that error."""
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    for result in ended:
        if isinstance(result, Exception):
            raise result


def _stream_tasks(runtime: Runtime, config: Config) -> list[asyncio.Task[None]]:
    if not config.feeds and config.outcomes is None:
        return []
    from .streams.feed import feed_channel
    from .streams.outcomes import publish_outcomes

    tasks = [
        asyncio.create_task(
            feed_channel(runtime, feed), name=f"jobs-feed-{feed.channel}-{feed.feed_id}"
        )
        for feed in config.feeds
    ]
    if config.outcomes is not None:
        tasks.append(
            asyncio.create_task(publish_outcomes(runtime, config.outcomes), name="jobs-outcomes")
        )
    return tasks


@contextlib.contextmanager
def _signals(stop: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: reload}
    for number, handler in handled.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
