"""Whether one more consumer may be made beside those that are there: how many, and who reads a work queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....pattern_tree import PatternTree
from ..config.consumer import filters_of
from ..config.options import JetStreamOptions
from ..config.refused import Refused


def check_count(stream: StreamConfig, options: JetStreamOptions, count: int) -> None:
    """Refuse one more than ``count`` consumers of a stream, if that is too many."""
    limits = (stream.max_consumers, options.limits.max_consumers, options.max_consumers_per_stream)
    if any(0 < limit <= count for limit in limits):
        raise Refused(Errors.MAX_CONSUMERS)


def check_work_queue(
    stream: StreamConfig, config: ConsumerConfig, others: Iterable[ConsumerConfig]
) -> None:
    """On a work queue each message has one consumer, which acknowledges and starts at the front."""
    if stream.retention != "workqueue" or _copies(config):
        return
    if config.ack_policy not in ("explicit", "flow_control"):
        raise Refused(Errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK)
    others = [other for other in others if not _copies(other)]
    filters = filters_of(config)
    if others and not filters:
        raise Refused(Errors.CONSUMER_WQ_MULTIPLE_UNFILTERED)
    ours = PatternTree(filter.encode() for filter in filters)
    for other in others:
        theirs: Sequence[str] = filters_of(other)
        if not theirs or ours.overlaps_any([filter.encode() for filter in theirs]):
            raise Refused(Errors.CONSUMER_WQ_NOT_UNIQUE)
    if config.deliver_policy != "all":
        raise Refused(Errors.CONSUMER_WQ_NOT_DELIVER_ALL)


def _copies(config: ConsumerConfig) -> bool:
    """Whether a consumer is of the kind other servers' mirrors and sources use: it does not count."""
    return config.direct or config.sourcing
