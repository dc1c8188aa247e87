"""Pedantic requests: what a server would silently set right in a stream's configuration is refused."""

from __future__ import annotations

from typing import Final

from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....limits import DUPLICATE_WINDOW_S_DEFAULT
from .options import JetStreamOptions
from .refused import Refused

__all__ = ["check_pedantic"]

_AT_LEAST_UNLIMITED: Final = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)


def check_pedantic(config: StreamConfig, options: JetStreamOptions) -> None:
    """Refuse a configuration, as it was asked for, that needs to be set right; texts as nats-server's."""
    for name in _AT_LEAST_UNLIMITED:
        if getattr(config, name) < -1:
            raise Refused(Errors.PEDANTIC, err=f"{name} must be set to -1")
    copies = config.mirror is not None or bool(config.sources)
    if (
        0 < options.assets.duplicate_window < DUPLICATE_WINDOW_S_DEFAULT
        and not copies
        and not config.duplicate_window
    ):
        text = "duplicate window limits are higher than current limits"
        raise Refused(Errors.PEDANTIC, err=text)
    short = 0 < config.max_age < DUPLICATE_WINDOW_S_DEFAULT
    if short and not copies and not config.duplicate_window:
        raise Refused(Errors.PEDANTIC, err="duplicate window cannot be bigger than max age")
    if config.subject_delete_marker_ttl >= 1:
        if not config.allow_msg_ttl:
            raise _invalid("subject delete marker cannot be set if message TTLs are disabled")
        if not config.allow_rollup_hdrs:
            raise _invalid("subject delete marker cannot be set if roll-ups are disabled")
    if config.allow_msg_schedules and not config.allow_rollup_hdrs:
        raise _invalid("message scheduling cannot be set if roll-ups are disabled")
    if config.republish is not None and not config.republish.src:
        raise Refused(Errors.PEDANTIC, err="republish source can not be empty")


def _invalid(text: str) -> Refused:
    return Refused(Errors.STREAM_INVALID_CONFIG, err=text)
