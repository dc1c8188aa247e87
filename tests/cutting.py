"""A connection that is lost at each read and each write of its socket in turn."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from headrace.client.connection import Connecting
from headrace.client.events import ErrorEvent, Event
from headrace.client.net.handshake import ServerAddress, parse_servers
from headrace.client.net.link import Link, open_link
from headrace.client.net.options import Options
from headrace.client.net.session import Session
from headrace.errors import HeadraceError
from portions import some

READ_BYTES: Final = 400  # a chunk is read in pieces of so much, so that there are more steps
WITHIN_S: Final = 20.0
STEPS_MAX: Final = 10_000
TOGETHER: Final = 16  # how often a scenario is played at a time, with other losses
SHARES: Final = {"before": 0.0, "amid": 0.5, "after": 1.0}
"""How much of the read or write at which the link is lost takes place."""


class Cutter:
    """Loses the links of its connections while it is armed: at the step ``at``, and once more ``gap`` steps
    later if that is given. A step is a read or a write of a socket."""

    def __init__(self, share: float, at: int, gap: int = 0) -> None:
        self.steps = 0
        self.losses = 0
        self.is_armed = False
        self.may_return = asyncio.Event()  # whether a lost link is replaced
        self.may_return.set()
        self._share = share
        self.at = at
        self._losing = {at, at + gap}
        self.errors: list[Exception] = []

    def connect(self, url: str, **options: Any) -> Connecting:
        """As ``headrace.client.connect``."""
        settings = Options(
            reconnect_wait=0.0001, reconnect_wait_max=0.001, on_event=self._on_event, **options
        )
        return Connecting(partial(Session, parse_servers(url), settings, dial=self._dial))

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ErrorEvent):
            self.errors.append(event.error)

    async def _dial(self, address: ServerAddress, options: Options) -> Link:
        await self.may_return.wait()
        link = await open_link(address, options)
        _Cuttable(link, self)
        return link

    def share(self) -> float | None:
        """The part of the next step that takes place before its link is lost; None if it is not."""
        if not self.is_armed:
            return None
        self.steps += 1
        if self.steps not in self._losing:
            return None
        self.losses += 1
        return self._share


class _Cuttable(asyncio.Transport, asyncio.Protocol):
    """Stands between a link and its socket, on both sides."""

    def __init__(self, link: Link, cutter: Cutter) -> None:
        super().__init__()
        self._link = link
        self._cutter = cutter
        self._inner = link.transport
        self._is_lost = False
        self._inner.set_protocol(self)
        link.upgrade(self)

    def _lose(self) -> None:
        self._is_lost = True
        self._inner.abort()

    # What the link does

    def write(self, data: Any) -> None:
        if self._is_lost:
            return
        share = self._cutter.share()
        self._inner.write(data if share is None else data[: int(share * len(data))])
        if share is not None:
            self._lose()

    def close(self) -> None:
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size()

    # What the socket does

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), READ_BYTES):
            if self._is_lost:
                return
            piece = data[start : start + READ_BYTES]
            share = self._cutter.share()
            read = piece if share is None else piece[: int(share * len(piece))]
            if read:
                self._link.data_received(read)
            if share is not None:
                self._lose()

    def eof_received(self) -> bool:
        return self._link.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()


Scenario = Callable[[Cutter], Awaitable[None]]


async def everywhere(scenario: Scenario, *, gap: int = 0) -> int:
    """Play a scenario without a loss, and then with one at each step, in one of the ``SHARES`` at least.

    Returns at how many places it can be lost, with each of the shares.
    """
    with _no_failures():
        await _play(scenario, Cutter(0, 0))
        return sum(
            [
                await _with_losses(scenario, name, gap, beginning)
                for beginning, name in enumerate(SHARES)
            ]
        )


async def _with_losses(scenario: Scenario, name: str, gap: int, beginning: int) -> int:
    """Several at a time: most of them wait for something."""
    played: list[Cutter] = []
    steps = iter(some(range(1, STEPS_MAX), len(SHARES), beginning))
    while not played or all(cutter.losses for cutter in played):
        cutters = [Cutter(SHARES[name], at, gap) for at in itertools.islice(steps, TOGETHER)]
        assert cutters, f"more than {STEPS_MAX} steps"
        async with asyncio.TaskGroup() as tasks:
            for cutter in cutters:
                tasks.create_task(_play(scenario, cutter, name))
        played += cutters
    return max((cutter.at for cutter in played if cutter.losses), default=0)


async def _play(scenario: Scenario, cutter: Cutter, name: str = "") -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            await scenario(cutter)
        strange = [each for each in cutter.errors if not isinstance(each, (HeadraceError, OSError))]
        assert not strange, strange
    except Exception as error:
        error.add_note(f"lost {name} step {cutter.at}; reported: {cutter.errors}")
        raise


@contextmanager
def _no_failures() -> Iterator[None]:
    """No callback and no task fails of which nobody hears."""
    loop = asyncio.get_running_loop()
    failures: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    try:
        yield
    finally:
        gc.collect()  # a task that failed complains when it goes
        loop.set_exception_handler(None)
    assert not failures, failures
