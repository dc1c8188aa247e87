"""``headrace serve --console PORT``: the web console beside the broker, in one process.

It has a thread and an event loop of its own, and connects to the broker as any client does: whatever it
works on, no other client waits for it longer than for the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ...errors import AuthorizationError, ConfigurationError, HeadraceError

if TYPE_CHECKING:
    from ...broker.server import Broker


@contextlib.asynccontextmanager
async def console_beside(broker: Broker, address: str) -> AsyncIterator[str]:
    """Serve the console at ``PORT`` or ``HOST:PORT`` while this is entered; gives its URL.

    Raises ConfigurationError: the address is wrong or taken, a package is missing, or the broker wants
    credentials, which only ``headrace console`` can be given.
    """
    from ...client.blocking.loop_thread import LoopThread

    try:
        from ...console import ConsoleServer, Settings
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"--console needs the package {error.name}: pip install 'headrace[console]'"
        ) from error
    host, port = _parse(address)
    settings = Settings(
        host=host, port=port, password=os.environ.get("HEADRACE_CONSOLE_PASSWORD", "")
    )
    loop = asyncio.get_running_loop()

    async def monitoring(page: str, options: dict[str, Any]) -> dict[str, Any]:
        """Asked in the console's loop, answered in the broker's."""
        asked = asyncio.run_coroutine_threadsafe(_monitored(broker, page, options), loop)
        return await asyncio.wrap_future(asked)

    stack = contextlib.AsyncExitStack()

    async def start() -> str:
        from ...client import connect

        async with contextlib.AsyncExitStack() as opening:
            connecting = connect(broker.client_url, name="headrace console")
            connection = await opening.enter_async_context(connecting)
            server = ConsoleServer(settings, connection, monitoring=monitoring)
            await opening.enter_async_context(server)
            stack.push_async_exit(opening.pop_all())
            return server.url

    thread = LoopThread()
    try:
        try:
            url = await asyncio.to_thread(thread.run, start())
        except ConfigurationError:
            raise
        except HeadraceError as error:
            reason = "it wants credentials" if isinstance(error, AuthorizationError) else str(error)
            raise ConfigurationError(
                f"--console cannot connect to the broker: {reason}; start the console beside it:"
                " headrace console --server nats://USER:PASSWORD@HOST"
            ) from error
        try:
            yield url
        finally:
            await asyncio.to_thread(thread.run, stack.aclose())
    finally:
        await asyncio.to_thread(thread.stop)


async def _monitored(broker: Broker, page: str, options: dict[str, Any]) -> dict[str, Any]:
    from ...broker.core.monitor.connections import connz
    from ...broker.core.monitor.server import accstatz, jsz, varz

    if page == "ACCSTATZ":
        return accstatz(broker.hub, unused=True)
    if page == "JSZ":
        return jsz(broker.hub, accounts=True)
    if page == "CONNZ":
        told = {name: options[name] for name in ("sort", "limit", "offset") if name in options}
        return connz(broker.hub, **told)
    return varz(broker.hub)


def _parse(address: str) -> tuple[str, int]:
    """``PORT`` or ``HOST:PORT``. Raises ConfigurationError."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ConfigurationError(f"--console {address!r}; accepted: PORT or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
