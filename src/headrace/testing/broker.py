"""A broker for tests without an event loop: it runs in a thread.

A test with a loop uses ``async with Broker() as broker`` directly. As a pytest fixture::

    @pytest.fixture(scope="session")
    def broker(): with BrokerThread() as running: yield running
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, Unpack

from ..broker.server import Broker

if TYPE_CHECKING:
    from ..broker.server.config.keywords import BrokerSettings

__all__ = ["BrokerThread"]


class BrokerThread:
    """A broker on a loop in its own thread. It takes the settings of ``Broker``.

    Entering returns once the broker listens, and raises the errors of its start. Leaving returns once
    everything is written to disk and closed.
    """

    def __init__(self, **settings: Unpack[BrokerSettings]) -> None:
        self._settings = settings
        self._thread = threading.Thread(target=self._main, name="headrace-broker", daemon=True)
        self._ready = threading.Event()
        self._end: Callable[[], object] = lambda: None  # until there is something to end
        self._error: BaseException | None = None
        self.port = 0
        self.client_url = ""
        self.monitor_url: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # passed on to the waiting thread
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._end = lambda: loop.call_soon_threadsafe(stop.set)
        async with Broker(**self._settings) as broker:
            self.port = broker.port
            self.client_url = broker.client_url
            self.monitor_url = broker.monitor_url
            self._ready.set()
            await stop.wait()
