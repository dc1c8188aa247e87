"""Which level of the API a stream's configuration needs; shown as ``_nats.req.level``."""

from __future__ import annotations

from .....api.streams import StreamConfig

__all__ = ["required_level"]


def required_level(config: StreamConfig) -> int:
    """0: any server; 1: since 2.11; 2: since 2.12; 4: since 2.14."""
    if config.allow_batched:
        return 4
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules:
        return 2
    if config.persist_mode == "async":
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0
