"""A consumer that does not answer: whether it is gone, and what is done then."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from ....errors import ConsumerNotFoundError, HeadraceError, StreamNotFoundError

IfGone = Literal["end", "wait", "create"]

_log = logging.getLogger("headrace.client")


class MissingConsumer:
    """Asks the server about a consumer that did not answer.

    Args:
        name: what the log calls it.
        ask: asks the server about it; raises as ``Consumer.info``.
        make_again: makes it again where it is gone, or returns False: nobody knows how it was made. None: it
            stays gone.
    """

    __slots__ = ("_ask", "_make_again", "_name", "creates")

    def __init__(
        self,
        name: str,
        ask: Callable[[], Awaitable[object]],
        make_again: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._name = name
        self._ask = ask
        self._make_again = make_again
        self.creates = make_again is not None

    async def look(self) -> tuple[bool, Exception | None]:
        """Whether it was gone and made again; and else the error that it is gone with, if it is. Who
        cannot say, such as a cluster without a leader, says neither."""
        try:
            await self._ask()
        except StreamNotFoundError as error:
            return False, error
        except ConsumerNotFoundError as error:
            missing = error
        except HeadraceError:
            return False, None
        else:
            return False, None
        try:
            is_made = self._make_again is not None and await self._make_again()
        except HeadraceError as error:
            _log.warning("consumer %s is gone and cannot be made again: %s", self._name, error)
            return False, None  # asked again with the next pull that is refused
        if not is_made:
            return False, missing
        _log.warning("consumer %s was gone and is made again", self._name)
        return True, None
