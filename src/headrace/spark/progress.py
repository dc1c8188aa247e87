"""Shows a query's progress on a durable consumer, where every NATS tool can see it.

Nothing pulls from the consumer: its position is moved after each committed batch, so that its pending count
is the query's true lag. It also records where a query with ``startingOffsets=latest`` began; Spark does
not, until the first batch is committed.
"""

from __future__ import annotations

from ..api.consumers import ConsumerConfig, ConsumerInfo
from ..api.streams import StreamConfig
from ..errors import ConfigurationError
from .control import Control

_ROLE = "headrace.role"
_ROLE_VALUE = "spark-progress"


class Progress:
    """The progress consumer of one query."""

    def __init__(self, name: str, subjects: tuple[str, ...]) -> None:
        self.name = name
        self._subjects = subjects
        self._shown: int | None = None

    def position(self, control: Control) -> int | None:
        """The last sequence shown as read, or None if the consumer does not exist yet.

        Raises:
            ConfigurationError: a consumer of this name exists, but belongs to another program.
        """
        info = control.consumer_info(self.name)
        if info is None:
            return None
        self._check_ours(info, control.stream)
        return info.ack_floor.stream_seq or info.delivered.stream_seq

    def start(self, control: Control, config: StreamConfig, seq: int) -> int:
        """Make sure the consumer exists; a new one starts at ``seq``. Returns its position.

        Raises:
            ConfigurationError: the stream does not have retention ``limits``: there a consumer decides when
                messages are removed, and one that only shows progress would hold or release them.
        """
        if config.retention != "limits":
            raise ConfigurationError(
                f"jetstream source: 'durable' works on streams with retention limits; {control.stream!r} "
                f"has {config.retention}, where the consumer would decide which messages are kept. "
                "Leave the option out"
            )
        found = self.position(control)
        if found is None:
            control.create_consumer(self._config(seq))
            found = seq
        self._shown = found
        return found

    def show(self, control: Control, seq: int) -> None:
        """Move the consumer to ``seq``: Spark has committed everything up to there."""
        if seq == self._shown:
            return
        if not control.reset_consumer(self.name, seq + 1):
            control.delete_consumer(self.name)
            control.create_consumer(self._config(seq))
        self._shown = seq

    def _config(self, seq: int) -> ConsumerConfig:
        one = self._subjects[0] if len(self._subjects) == 1 else ""
        return ConsumerConfig(
            durable_name=self.name,
            description="progress of a Spark query; it delivers nothing",
            deliver_policy="by_start_sequence" if seq else "all",
            opt_start_seq=seq + 1 if seq else 0,
            ack_policy="explicit",
            filter_subject=one,
            filter_subjects=() if one else self._subjects,
            metadata={_ROLE: _ROLE_VALUE},
        )

    def _check_ours(self, info: ConsumerInfo, stream: str) -> None:
        if info.config.metadata.get(_ROLE) != _ROLE_VALUE:
            raise ConfigurationError(
                f"jetstream source: consumer {self.name!r} of stream {stream!r} exists and was not made by a "
                "Spark query; choose another name for 'durable'"
            )
