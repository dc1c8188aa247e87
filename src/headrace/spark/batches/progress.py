"""Shows a query's progress on a durable consumer, where every NATS tool can see it.

Nothing pulls from the consumer: its position is moved after each committed batch, so that its pending count
is the query's true lag. It also records where a query with ``startingOffsets=latest`` began; Spark does
not, until the first batch is committed.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import Final

from msgspec import structs

from ...api.consumers import ConsumerConfig, ConsumerInfo
from ...api.roles import ROLE, SPARK_PROGRESS, TOLD
from ...api.streams import StreamConfig
from ...api.times import format_time
from ...errors import ConfigurationError
from ..links.control import Control

Clock = Callable[[], float]

_LOG: Final = logging.getLogger("headrace.spark")

TOLD_EVERY_S: Final = 10.0  # noting the time is a call of its own

_OWNER: Final = "headrace.owner"
_STARTED: Final = (
    "headrace.started"  # nanoseconds since the Unix epoch; later than those of former owners
)


class Progress:
    """The progress consumer of one query.

    Args:
        subjects: what its pending count counts; none: all of the stream.
        owner: the same in all uses of the source in one query, which is joined with itself, say; "" if there
            is one use.
        clock: seconds since the Unix epoch.

    Attributes:
        subjects: as given.
    """

    def __init__(
        self, name: str, subjects: tuple[str, ...] = (), owner: str = "", clock: Clock = time.time
    ) -> None:
        self.name = name
        self.subjects = subjects
        self._owner = owner or secrets.token_hex(8)
        self._clock = clock
        self._told = 0.0
        self._started = 0
        self._shown: int | None = None

    def start(self, control: Control, config: StreamConfig, seq: int) -> int:
        """Make sure the consumer exists and is ours; a new one starts at ``seq``. Returns its position.

        The query that started last owns it: one that was restarted must not wait for the one that died.

        Raises:
            ConfigurationError: a consumer of this name exists, but belongs to another program.
            ConfigurationError: the stream does not have retention ``limits``: there a consumer decides when
                messages are removed, and one that only shows progress would hold or release them.
        """
        if config.retention != "limits":
            raise ConfigurationError(
                f"jetstream source: 'durable' works on streams with retention limits; {control.stream!r} "
                f"has {config.retention}, where the consumer would decide which messages are kept. "
                "Leave the option out"
            )
        info = control.consumer_info(self.name)
        self._started = round(self._clock() * 1e9)
        if info is None:
            control.create_consumer(self._config(seq))
            self._shown = seq
            return seq
        self._check_role(info, control.stream)
        before = _started(info)
        is_ours = info.config.metadata.get(_OWNER) == self._owner
        self._started = before if is_ours and before else max(self._started, before + 1)
        found = info.ack_floor.stream_seq or info.delivered.stream_seq
        control.create_consumer(self._updated(info), action="update")
        self._shown = found
        return found

    def show(self, control: Control, seq: int) -> None:
        """Move the consumer to ``seq``: Spark has committed everything up to there.

        A former owner that was frozen in a call can note itself once more when it wakes up: it started before
        us, so the consumer is taken back.

        Raises:
            ConfigurationError: another query has taken the consumer over.
        """
        if seq == self._shown:
            return
        info = control.consumer_info(self.name)
        if info is None:
            _LOG.warning(
                "consumer %r of stream %r was deleted; it is made again", self.name, control.stream
            )
            control.create_consumer(self._config(seq))
        elif info.config.metadata.get(_OWNER) != self._owner and _started(info) >= self._started:
            raise ConfigurationError(
                f"jetstream source: another query has started with durable {self.name!r} of stream "
                f"{control.stream!r} and shows its progress there; give each query, and each reader of a "
                "query that reads the stream twice, a 'durable' of its own"
            )
        elif not control.reset_consumer(self.name, seq + 1):
            control.delete_consumer(self.name)
            control.create_consumer(self._config(seq))
        elif self._is_to_be_noted(info):
            control.create_consumer(self._updated(info), action="update")
        self._shown = seq

    def _is_to_be_noted(self, info: ConsumerInfo) -> bool:
        is_ours = info.config.metadata.get(_OWNER) == self._owner
        return not (is_ours and self._counts_the_same(info)) or self._is_told_late()

    def _is_told_late(self) -> bool:
        return abs(self._clock() - self._told) >= TOLD_EVERY_S

    def _counts_the_same(self, info: ConsumerInfo) -> bool:
        return (info.config.filter_subject, info.config.filter_subjects) == self._filters()

    def _filters(self) -> tuple[str, tuple[str, ...]]:
        return (self.subjects[0], ()) if len(self.subjects) == 1 else ("", self.subjects)

    def _metadata(self) -> dict[str, str]:
        self._told = self._clock()
        told = format_time(round(self._told * 1e9))
        started = str(self._started)
        return {ROLE: SPARK_PROGRESS, _OWNER: self._owner, _STARTED: started, TOLD: told}

    def _updated(self, info: ConsumerInfo) -> ConsumerConfig:
        one, several = self._filters()
        return structs.replace(
            info.config,
            filter_subject=one,
            filter_subjects=several,
            metadata={**info.config.metadata, **self._metadata()},
        )

    def _config(self, seq: int) -> ConsumerConfig:
        one, several = self._filters()
        return ConsumerConfig(
            durable_name=self.name,
            description="progress of a Spark query; it delivers nothing",
            deliver_policy="by_start_sequence" if seq else "all",
            opt_start_seq=seq + 1 if seq else 0,
            ack_policy="explicit",
            filter_subject=one,
            filter_subjects=several,
            metadata=self._metadata(),
        )

    def _check_role(self, info: ConsumerInfo, stream: str) -> None:
        if info.config.metadata.get(ROLE) != SPARK_PROGRESS:
            raise ConfigurationError(
                f"jetstream source: consumer {self.name!r} of stream {stream!r} exists and was not made by a "
                "Spark query; choose another name for 'durable'"
            )


def _started(info: ConsumerInfo) -> int:
    """When its owner started; 0 where that is not noted, as by older versions."""
    text = info.config.metadata.get(_STARTED, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
