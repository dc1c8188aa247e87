"""The lease of a runner, which has no event loop: kept by a thread."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from ..client import connect
from ..locks.key import KeyLock, bucket_of_locks, key_holder
from ..locks.pinned import PinLock, pin_holder
from ..locks.tenure import LockLostError
from .model import LeaseSettings, connect_options
from .session.session import LEASE_THREAD

if TYPE_CHECKING:
    from ..client import JetStream


def holder_of(settings: LeaseSettings, name: str) -> str:
    """Who holds the lease of a pipeline now; "" for nobody. Raises HeadraceError: the server did not say."""
    return asyncio.run(_holder_of(settings, name))


async def _holder_of(settings: LeaseSettings, name: str) -> str:
    async with connect(
        list(settings.servers), **connect_options(settings, f"headrace pipeline {name}")
    ) as connection:
        js = connection.jetstream()
        if settings.kind == "pinned":
            return await pin_holder(js, settings.bucket, name)
        return await key_holder(js, settings.bucket, name)


def who_we_are() -> str:
    """Of this process, for people: machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Standby:
    """Waits for a lease and keeps it, on a thread of its own; a context manager.

    Args:
        name: the pipeline's.
        on_lost: called on that thread, with a sentence, when the lease is not ours any more.

    Attributes:
        token: a number that grows with every holder; 0 while the lease is not ours.
    """

    def __init__(
        self, settings: LeaseSettings, name: str, on_lost: Callable[[str], object]
    ) -> None:
        self._settings = settings
        self._name = name
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._begun = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._lease: KeyLock | PinLock | None = None
        self._thread = threading.Thread(target=self._run, name=f"{LEASE_THREAD}{name}", daemon=True)
        self.token = 0

    def __enter__(self) -> Self:
        """Connect. Raises what is wrong with the connection or the bucket."""
        self._thread.start()
        self._begun.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *exc: object) -> None:
        if self._loop is not None and self._task is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def holder(self) -> str:
        """Who has the lease, as far as is known."""
        return self._lease.holder() if self._lease is not None else ""

    def nobody_s(self) -> float | None:
        """When the lease became ours, how long ago another holder had said its last word."""
        return self._lease.nobody_s() if self._lease is not None else None

    def wait(self, seconds: float) -> int:
        """Wait for the lease, at most so long. Returns the token; 0 if it is another's.

        Raises:
            HeadraceError: there will be none: the connection was refused for good.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.token or self._failure is not None, seconds)
        if self._failure is not None:
            raise self._failure
        return self.token

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # it is raised where somebody waits
            self._fail(error)
        finally:
            self._begun.set()

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        servers = list(self._settings.servers)
        async with (
            connect(
                servers, **connect_options(self._settings, f"headrace pipeline {self._name}")
            ) as connection,
            await self._make(connection.jetstream()) as lease,
        ):
            self._lease = lease
            self._begun.set()
            while True:
                token = await lease.acquire()
                with self._changed:
                    self.token = token
                    self._changed.notify_all()
                try:
                    await lease.hold()
                except LockLostError as error:
                    self.token = 0
                    self._on_lost(f"the lease {self._name!r} was lost: {error.why}")

    async def _make(self, js: JetStream) -> KeyLock | PinLock:
        """Raises ConfigurationError: the bucket removes its values after another time."""
        given, owner = self._settings, who_we_are()
        if given.kind == "pinned":
            return PinLock(js, given.bucket, self._name, owner, given.seconds, given.replicas)
        bucket = await bucket_of_locks(js, given.bucket, given.seconds, given.replicas)
        return KeyLock(bucket, self._name, owner, given.seconds, on_trouble=lambda error: None)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure, self.token = error, 0
            self._changed.notify_all()
        if self._begun.is_set():
            self._on_lost(f"the lease {self._name!r} was lost: {error}")
