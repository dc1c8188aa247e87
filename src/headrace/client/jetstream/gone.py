"""A consumer that does not answer: whether it is gone, and what is done then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from ...errors import ConsumerNotFoundError, HeadraceError, StreamNotFoundError

if TYPE_CHECKING:
    from .consumer import Consumer

IfGone = Literal["end", "wait", "create"]

_log = logging.getLogger("headrace.client")


class Gone:
    """Asks the server about a consumer that did not answer.

    Args:
        creates: whether it is made again where it is gone.
    """

    __slots__ = ("_consumer", "creates")

    def __init__(self, consumer: Consumer, creates: bool) -> None:
        self._consumer = consumer
        self.creates = creates

    async def look(self) -> tuple[bool, Exception | None]:
        """Whether it was gone and made again; and else the error that it is gone with, if it is. Who
        cannot say, such as a cluster without a leader, says neither."""
        info = self._consumer.cached_info
        try:
            await self._consumer.info()
        except (ConsumerNotFoundError, StreamNotFoundError) as error:
            is_missing = isinstance(error, ConsumerNotFoundError)
            if not (is_missing and self.creates and info is not None):
                return False, error
        except HeadraceError:
            return False, None
        else:
            return False, None
        from .consumers import Consumers

        consumer = self._consumer
        consumers = Consumers(consumer._api, consumer.stream_name)
        try:
            consumer.cached_info = await consumers.create_info(info.config, {}, "")
        except HeadraceError as error:
            _log.warning("consumer %s is gone and cannot be made again: %s", consumer._label, error)
            return False, None  # asked again with the next pull that is refused
        _log.warning("consumer %s was gone and is made again", consumer._label)
        return True, None
