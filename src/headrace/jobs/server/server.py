"""One process of the service: HTTP, push, maintenance, feeds; started, drained, stopped."""

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

from ...errors import ConfigurationError
from ...web.asgi import AsgiServer
from ...web.connections import ConnectionLimits
from .. import limits
from ..config.config import Config
from ..http import create_app
from ..http.asgi.gateway import Gateway
from ..maintenance.archive import Archive
from ..maintenance.maintenance import Maintenance
from ..push.engine import PushEngine
from ..runtime.runtime import Runtime
from ..store import open_database
from .reload import Reloader, apply_definitions, keep_of

__all__ = [
    "DescriptorShares",
    "descriptor_shares",
    "make_maintenance",
    "make_runtime",
    "serve",
    "tell_of_loop",
]

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
    """How many open files are for HTTP connections, calls of push, and connections of push besides."""

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
    from ..streams.feed import feed_channel
    from ..streams.outcomes import publish_outcomes

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
