"""Which publisher a connection has: the only place that knows all kinds."""

from __future__ import annotations

from ..jetstream.calls import Api
from .fast_publisher import FastPublisher
from .inprocess_publisher import InProcessPublisher
from .publisher import Publisher, PublisherSettings
from .wire_publisher import WirePublisher


def make_publisher(api: Api, settings: PublisherSettings, *, fast: bool) -> Publisher:
    """A publisher in fast batches, or one whose messages are answered one by one."""
    return FastPublisher(api, settings) if fast else make_window_publisher(api, settings)


def make_window_publisher(
    api: Api, settings: PublisherSettings
) -> WirePublisher | InProcessPublisher:
    """A publisher whose messages are answered one by one."""
    frames = api.session.outbox.carries_frames
    return InProcessPublisher(api, settings) if frames else WirePublisher(api, settings)
