"""A consumer's ``ack_wait`` may be changed while its messages are held; who holds them learns of it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ....errors import DisconnectedError, HeadraceError, RequestTimeoutError

if TYPE_CHECKING:
    from ...net.session import Session

SHARE: Final = 1 / 3  # of the time to acknowledge passes between two questions …
AT_LEAST_S: Final = 1.0  # … and so long

_log = logging.getLogger("headrace.client")

Ask = Callable[[], Awaitable[float]]
"""Asks the server how long it waits for acknowledgements, in seconds; 0: for ever."""


class Following:
    """Asks now and then, while there is a reason to.

    Args:
        ack_wait: seconds, as far as is known.
        changed: told what it is instead.
    """

    def __init__(
        self,
        session: Session,
        label: str,
        ask: Ask,
        ack_wait: float,
        changed: Callable[[float], None],
    ) -> None:
        self._session = session
        self._label = label
        self._ask = ask
        self._ack_wait = ack_wait
        self._changed = changed
        self._asking: asyncio.Task[None] | None = None
        self._not_before = -math.inf

    def look(self, now: float) -> None:
        """Something is held for long, or was for too long: ask, unless that was done lately."""
        if self._asking is None and now >= self._not_before:
            self._not_before = now + max(AT_LEAST_S, self._ack_wait * SHARE)
            self._asking = self._session.loop.create_task(
                self._learn(), name=f"ask for ack_wait of {self._label}"
            )

    def stop(self) -> None:
        """Ask no more."""
        self._not_before = math.inf
        if self._asking is not None:
            self._asking.cancel()

    async def _learn(self) -> None:
        try:
            ack_wait = await self._ask()
        except (RequestTimeoutError, DisconnectedError):
            return  # asked again
        except HeadraceError as error:
            self._not_before = math.inf  # it is gone, which others see to; or we may not ask
            _log.debug("consumer %s: its ack_wait is not asked for: %s", self._label, error)
            return
        finally:
            self._asking = None
        if ack_wait and ack_wait != self._ack_wait:
            _log.info("consumer %s: ack_wait is %g s now", self._label, ack_wait)
            self._ack_wait = ack_wait
            self._changed(ack_wait)
