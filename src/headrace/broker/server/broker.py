"""The broker as a user holds it: start, where it listens, stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ... import limits
from ...clock import Clock, ManualClock
from ...errors import ConfigurationError
from ...sockets import stop_listening
from ...wire.inprocess import ClientEnd, ServerEnd
from ..core.hub import Hub
from ..core.jetstream.config.options import JetStreamOptions
from ..core.options import HubOptions
from .config.options import BrokerOptions, WebSocketOptions, reloadable
from .connections.connection import Connection, bind, is_loopback, shown_host, url_of
from .connections.pump import Pump
from .machine import (
    Descriptors,
    disk_bytes,
    memory_bytes,
    process_numbers,
    share_out,
    time_zone,
)
from .moved_clock import NEVER_NS, MovedClock, checked, tell_of_jump, tell_of_streams_ahead
from .passwords import DecisionThreads
from .storage import OpenStorage, open_storage

if TYPE_CHECKING:
    from .config.keywords import BrokerSettings
    from .connections.websocket import WebSocketListener
    from .monitor import Monitor

logger = logging.getLogger("headrace.broker")

BACKLOG: Final = 1024
DRAIN_S: Final = 5.0  # how long clients may take to read their last bytes when the broker stops


class Broker:
    """A message broker inside this event loop, speaking the NATS protocol with JetStream.

    ::

        async with Broker(store_dir="data") as broker:
            print(broker.client_url)

    Takes the settings of ``BrokerOptions`` by keyword, or ready-made as ``options``. Nothing global is
    touched: no signal handlers, no logging set-up, no event loop policy. Not restartable.

    ``clock`` is for tests: a ``headrace.clock.ManualClock`` that the test moves, which ages, redeliveries
    and schedules follow; None is the machine's.

    Raises:
        ConfigurationError: on construction or start, when a setting is wrong, the port is taken, or
            strangers could connect without authentication.
        StoreError: on start, when the store directory is locked, unreadable or of an unknown format.
    """

    def __init__(
        self,
        options: BrokerOptions | None = None,
        *,
        clock: Clock | None = None,
        **settings: Unpack[BrokerSettings],
    ) -> None:
        clock = checked(clock)
        if options is None:
            options = BrokerOptions(**settings)
        elif settings:
            options = dataclasses.replace(options, **settings)
        options.check()
        self.options = options
        self._moved = MovedClock(clock) if isinstance(clock, ManualClock) else None
        self._clock = self._moved or clock
        self._tls: ssl.SSLContext | None = options.tls.context() if options.tls else None
        self._hub: Hub | None = None
        self._pump: Pump | None = None
        self._decisions: DecisionThreads | None = None
        self._storage: OpenStorage | None = None
        self._server: asyncio.Server | None = None
        self._monitor: Monitor | None = None
        self._websockets: WebSocketListener | None = None
        self._websocket_url: str | None = None
        self._websocket_place: tuple[str, int, bool] | None = None
        self._port = 0
        self._room_for_connections = options.connections_max
        self._started = False
        self._stopping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        where = self.client_url if self._server is not None else "not listening"
        return f"<Broker {where}>"

    # Where it is

    @property
    def port(self) -> int:
        """The port clients connect to; 0 before the start."""
        return self._port

    @property
    def client_url(self) -> str:
        """Where clients connect; credentials are not in it."""
        return url_of("tls" if self._tls else "nats", self.options.host, self._port)

    @property
    def monitor_url(self) -> str | None:
        """Where monitoring answers, if it was asked for."""
        return None if self._monitor is None else self._monitor.url

    @property
    def websocket_url(self) -> str | None:
        """Where WebSockets are accepted, if they were asked for."""
        return self._websocket_url

    @property
    def hub(self) -> Hub:
        """The brain, for tests and monitoring. Only to be touched in the broker's own loop.

        Raises ConfigurationError before the start.
        """
        if self._hub is None:
            raise ConfigurationError("the broker is not started")
        return self._hub

    def accept(self, client: ClientEnd) -> ServerEnd:
        """A client in this process and this event loop; how ``headrace.Broker.connect`` gets in.

        Raises ConnectionClosedError: it is not running; ConfigurationError: called in another loop.
        """
        from .connections.inprocess import accept  # many brokers have no such client

        return accept(self._pump, client)

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Recover what is stored, then listen. A failed start leaves nothing behind.

        Raises ConfigurationError: it was started before; a broker is started once. And what the class
        says.
        """
        if self._started:
            raise ConfigurationError("the broker was started before; make a new one to start again")
        self._started = True
        options = self.options
        if not (options.insecure or options.authenticator().required):
            await self._refuse_strangers(options.host)
            if options.websocket is not None and options.websocket.host is not None:
                await self._refuse_strangers(options.websocket.host)
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        options = self.options
        loop = asyncio.get_running_loop()
        # Bound before the store is opened, so that a second broker says "port", and listening only
        # afterwards, so that nobody meets half a broker.
        listener = await bind(options.host, options.port)
        try:
            self._port = listener.getsockname()[1]
            shares = self._share_descriptors()
            hub = self._hub = self._make_hub()
            hub.about_process = lambda: process_numbers(
                hub.clock.monotonic_ns() - hub.started_monotonic_ns
            )
            hub.clock.on_jump = tell_of_jump
            hub.configure_accounts(options.all_accounts(), options.system_account)
            pump = self._pump = Pump(hub, loop)
            if self._moved is not None:
                self._moved.begin(pump)
            hub.decisions = self._decisions = DecisionThreads(loop, pump.wake)
            if options.jetstream:
                storage = self._storage = await open_storage(options, loop, pump, shares.store)
                hub.start_jetstream(storage.storage, self._jetstream_options(hub))
                hub.about_store = storage.describe
                storage.tell()
                tell_of_streams_ahead(hub)
                pump.wake()
            if options.monitor_port is not None:
                from ...web.pages import PAGE_LIMITS
                from .monitor import Monitor

                page_limits = dataclasses.replace(PAGE_LIMITS, connections_max=shares.monitor)
                self._monitor = Monitor(hub, page_limits)
                await self._monitor.start(
                    options.monitor_host or options.host, options.monitor_port
                )
            if options.websocket is not None:
                await self._listen_for_websockets(options.websocket, pump)
            self._server = await self._listen(listener, pump)
        except BaseException:
            listener.close()
            raise
        logger.info(
            "Listening for client connections on %s:%d", shown_host(options.host), self._port
        )

    async def stop(self) -> None:
        """Stop listening, say good-bye, write everything down, close. May be called again."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        # A cancelled caller must not leave the store half closed.
        await asyncio.shield(self._stopping)

    def announce_stop(self) -> None:
        """Tell the clients to look for another server; they are served until ``stop``."""
        if self._pump is not None:
            self._pump.hub.announce_shutdown()
            self._pump.wake()

    def reload(self, options: BrokerOptions) -> list[str]:
        """Change to these settings as far as that goes while serving; all or nothing.

        Credentials, permissions and limits hold at once, for those who are connected, too: who has lost
        them, or is beyond them, is hung up on. Certificates are read again. Returns the
        names of changed settings that need a restart; they stay as they are. To be called in the
        broker's own loop. Raises ConfigurationError, and then nothing has changed.
        """
        if self._pump is None:
            raise ConfigurationError("the broker is not started")
        options.check()
        before = self.options
        options, left = reloadable(before, options)
        authenticator = options.authenticator()
        if before.authenticator().required and not (authenticator.required or options.insecure):
            raise ConfigurationError(
                "the new settings have no authentication and the old ones have; "
                "accepted are a user and password, users or a token, or insecure (--insecure)"
            )
        context = options.tls.context() if options.tls else None
        if self._tls is not None and context is not None and options.tls is not None:
            # The listener of `handshake_first` keeps its context: the certificate is changed in it.
            self._tls.load_cert_chain(options.tls.certificate_file, options.tls.key_file)
            if not options.tls.handshake_first:
                self._tls = context
        self.options = options
        hub = self._pump.hub
        keep = hub.configure_accounts(options.all_accounts(), options.system_account)
        left += [f"accounts.{name}.jetstream" for name in keep]
        hub.reconfigure(self._hub_options(), authenticator)
        self._pump.wake()
        return left

    async def _stop(self) -> None:
        server, pump, hub = self._server, self._pump, self._hub
        if self._moved is not None:
            self._moved.end()
        if pump is not None:
            pump.is_ending = True
        if server is not None:
            await stop_listening(server)
        if self._websockets is not None:
            await self._websockets.close()
        if self._monitor is not None:
            await self._monitor.stop()
        if hub is not None and pump is not None:
            hub.shutdown()
            pump.flush_all()
            if self._storage is not None:
                await self._storage.flushed()  # acknowledgements of what was on its way to the disk
            for connection in list(pump.connections.values()):
                connection.hurry()
            hub.close_sessions()
            pump.flush_all()
            await self._close_connections(pump)
            pump.stop()
        if self._decisions is not None:
            self._decisions.stop()
        if self._storage is not None:
            await self._storage.close()
            self._storage = None
        for listener in (server, self._websockets):
            if listener is not None:
                await listener.wait_closed()
        logger.debug("stopped")

    # Private

    @property
    def _tls_timeout(self) -> float:
        tls = self.options.tls
        return limits.TLS_TIMEOUT_S if tls is None else tls.timeout

    def _share_descriptors(self) -> Descriptors:
        """What the store keeps for itself, and how many connections there can be beside it."""
        options = self.options
        on_disk = options.jetstream and options.store_dir is not None
        monitor = 0
        if options.monitor_port is not None:
            from ...web.pages import PAGE_LIMITS

            monitor = PAGE_LIMITS.connections_max
        shares = share_out(store=on_disk, monitor_max=monitor)
        self._room_for_connections = shares.connections
        if shares.connections < options.connections_max:
            chosen = options.connections_max != limits.CONNECTIONS_MAX
            logger.log(
                logging.WARNING if chosen else logging.INFO,
                "max_connections is lowered from %d to %d: this process may have %d open files, "
                "of which %d are the store's (ulimit -n)",
                options.connections_max,
                shares.connections,
                shares.limit,
                shares.store,
            )
        return shares

    def _make_hub(self) -> Hub:
        generator = random.Random(secrets.randbits(128))
        return Hub(self._clock, generator, self._hub_options(), self.options.authenticator())

    def _jetstream_options(self, hub: Hub) -> JetStreamOptions:
        memory, files = self.options.memory_bytes_max, self.options.file_bytes_max
        return JetStreamOptions(
            server_name=hub.server_name,
            domain=self.options.domain,
            max_memory_bytes=-1 if memory is None else memory,
            max_storage_bytes=-1 if files is None else files,
            assets=self.options.jetstream_limits,
            pin_handover=self.options.pin_handover,
            time_zone=time_zone,
            warn=logger.warning,
        )

    def _hub_options(self) -> HubOptions:
        options = self.options
        memory, files = options.memory_bytes_max, options.file_bytes_max
        if files is None:
            files = memory_bytes() if options.store_dir is None else disk_bytes(options.store_dir)
        return HubOptions(
            server_name=options.server_name,
            domain=options.domain,
            host=options.host,
            port=self._port,
            headers=options.headers,
            max_payload=options.max_payload,
            max_control_line=options.max_control_line,
            connections_max=min(options.connections_max, self._room_for_connections),
            subscriptions_max=options.subscriptions_max,
            subscription_tokens_max=options.subscription_tokens_max,
            outbound_bytes_max=options.outbound_bytes_max,
            auth_timeout_ns=self._alive_ns(options.auth_timeout),
            ping_interval_ns=self._alive_ns(options.ping_interval),
            pings_out_max=options.pings_out_max,
            ping_first_ns=self._alive_ns(min(2.0, options.ping_interval)),
            tls_required=self._tls is not None,
            tls_timeout_ns=round(self._tls_timeout * 1e9),
            websocket=self._websocket_place,
            tls_verify=self._tls is not None and self._tls.verify_mode is not ssl.CERT_NONE,
            max_memory_bytes=memory_bytes() if memory is None else memory,
            max_storage_bytes=files,
            sync=options.sync if options.store_dir is not None else "memory",
            store_dir="" if options.store_dir is None else str(Path(options.store_dir)),
        )

    def _alive_ns(self, seconds: float) -> int:
        """How long a client may be silent: it does not live by a clock that a test moves."""
        return NEVER_NS if self._moved is not None else round(seconds * 1e9)

    async def _listen(self, listener: Any, pump: Pump) -> asyncio.Server:
        tls = self.options.tls
        loop = asyncio.get_running_loop()
        if self._tls is not None and tls is not None and tls.handshake_first:
            return await loop.create_server(
                lambda: Connection(pump, None, is_tls=True),
                sock=listener,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=tls.timeout,
            )
        return await loop.create_server(
            lambda: Connection(pump, self._tls, tls_timeout=self._tls_timeout),
            sock=listener,
            backlog=BACKLOG,
        )

    async def _listen_for_websockets(self, options: WebSocketOptions, pump: Pump) -> None:
        from .connections.websocket import WebSocketListener  # an extra

        websockets = WebSocketListener(pump, options, self.options.max_payload)
        host = options.host or self.options.host
        listener = await bind(host, options.port)
        try:
            await websockets.start(listener)
        except BaseException:
            listener.close()
            raise
        self._websockets = websockets
        scheme = "ws" if options.tls is None else "wss"
        port = listener.getsockname()[1]
        self._websocket_url = url_of(scheme, host, port)
        self._websocket_place = (host, port, options.tls is not None)
        pump.hub.options = self._hub_options()
        logger.info("Listening for websocket clients on %s", self._websocket_url)

    @staticmethod
    async def _refuse_strangers(host: str) -> None:
        if not await is_loopback(host):
            raise ConfigurationError(
                f"host: {host!r} can be reached from other machines, and clients need no credentials; "
                "accepted are a loopback address, a user and password or a token, or insecure (--insecure)"
            )

    @staticmethod
    async def _close_connections(pump: Pump) -> None:
        """Wait until every socket is closed; those who do not read their last bytes are cut."""
        connections = list(pump.connections.values())
        if not connections:
            return
        waiting = [asyncio.ensure_future(connection.gone.wait()) for connection in connections]
        _done, late = await asyncio.wait(waiting, timeout=DRAIN_S)
        if late:
            for connection in connections:
                connection.abort()
            await asyncio.wait(late)
