"""More than one message at a time: batches; and messages that count, or that come later."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..api import names
from ..api.messages import PubAck
from ..errors import ConfigurationError
from .jetstream.calls import Api
from .jetstream.configuration import seconds, time_text
from .message import HeadersLike
from .publish.atomic_batch import AtomicBatch
from .publish.awaited import publish_awaited
from .publish.headers import duration_text, with_pairs

__all__ = ["Publishing"]


class Publishing:
    """A part of ``JetStream``; never used alone."""

    _api: Api

    def batch(self, *, timeout: float | None = None) -> AtomicBatch:
        """Messages stored together or not at all; a context manager, which commits at its end.

        Args:
            timeout: seconds to wait for the answer to the whole batch; None is the context's.
        """
        return AtomicBatch(self._api, self._api.timeout if timeout is None else timeout)

    async def increment(self, subject: str, by: int = 1, *, headers: HeadersLike = None) -> int:
        """Add ``by``, which may be negative, to the counter ``subject``, and return its new value.

        The stream must have ``allow_msg_counter`` (nats-server 2.12). A lost answer is not repeated: after
        TimeoutError or DisconnectedError the counter may have been changed or not. The value is read by
        ``stream.counter(subject)``. Raises as ``publish``.
        """
        given = with_pairs(headers, (names.INCREMENT, f"{by:+d}"))
        ack = await publish_awaited(self._api, subject, b"", given, {})
        if not ack.val:
            raise ConfigurationError(
                f"the stream {ack.stream!r} of {subject!r} has no counters: it stored an ordinary message"
            )
        return int(ack.val)

    async def schedule(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        target: str,
        at: datetime | None = None,
        every: timedelta | float = 0.0,
        cron: str = "",
        time_zone: str = "",
        source: str = "",
        ttl: float | str = 0,
        headers: HeadersLike = None,
    ) -> PubAck:
        """Have the stream publish ``payload`` on ``target``, later or again and again.

        The stream must have ``allow_msg_schedules`` (nats-server 2.12), and both subjects. ``subject`` is
        the schedule's own: another one there replaces it, and ``stream.purge(subject=…)`` ends it.

        Args:
            at: once, at this time; without a zone it is local time.
            every: again and again, in seconds or as a timedelta, at least 1 second.
            cron: again and again, by six fields (seconds first) or ``@hourly``, ``@daily`` and so on. Of
                these three exactly one must be given.
            time_zone: that ``cron`` means, as ``Europe/Berlin``; UTC without.
            source: a subject whose newest message is published instead of ``payload``.
            ttl: seconds after which each published message is removed, or "never".

        Raises as ``publish``.
        """
        period = seconds(every)
        if (at is not None) + bool(period) + bool(cron) != 1:
            raise ConfigurationError("a schedule needs one of at=…, every=… and cron=…")
        when = cron
        if at is not None:
            when = f"@at {time_text(at)}"
        elif period:
            when = f"@every {duration_text(period)}"
        given = with_pairs(
            headers,
            (names.SCHEDULE, when),
            (names.SCHEDULE_TARGET, target),
            (names.SCHEDULE_TIME_ZONE, time_zone),
            (names.SCHEDULE_SOURCE, source),
            (names.SCHEDULE_TTL, ttl if isinstance(ttl, str) else duration_text(ttl)),
        )
        return await publish_awaited(self._api, subject, payload, given, {})
