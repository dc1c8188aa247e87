"""What a server allows streams, consumers and batches: ``limits`` of ``jetstream`` in nats-server's files."""

from __future__ import annotations

from typing import NamedTuple

from ..core.account_options import AssetLimits
from .config_fields import Fields, refuse
from .config_syntax import ConfigValue

__all__ = ["AssetSettings", "read_asset_limits"]

_KNOWN = "max_ack_pending, max_request_batch, duplicate_window, batch and max_ha_assets"
_KNOWN_OF_BATCHES = "max_inflight_per_stream, max_inflight_total, max_msgs and timeout"


class AssetSettings(NamedTuple):
    """The limits, and where one stands that means nothing to a single node."""

    limits: AssetLimits
    ignored: ConfigValue | None = None


def read_asset_limits(value: ConfigValue) -> AssetSettings:
    """A map of limits. Raises ConfigurationError with the place."""
    fields = Fields(value, "limits")
    ignored = fields.peek("max_ha_assets")
    fields.number("max_ha_assets")
    batch = fields.take("batch")
    batches = Fields(batch, "limits.batch") if batch is not None else None
    limits = AssetLimits(
        max_ack_pending=_limit(fields, "max_ack_pending"),
        max_request_batch=_limit(fields, "max_request_batch"),
        duplicate_window=fields.seconds("duplicate_window") or 0.0,
        batches_per_stream=_limit(batches, "max_inflight_per_stream"),
        batches=_limit(batches, "max_inflight_total"),
        batch_messages=_limit(batches, "max_msgs"),
        batch_idle=(batches.seconds("timeout") if batches is not None else None) or 0.0,
    )
    for key, unknown in fields.rest():
        refuse(unknown, f"limits.{key}", f"no limit of JetStream; accepted are {_KNOWN}")
    for key, unknown in batches.rest() if batches is not None else ():
        refuse(unknown, f"limits.batch.{key}", f"no limit; accepted are {_KNOWN_OF_BATCHES}")
    return AssetSettings(limits, ignored)


def _limit(fields: Fields | None, name: str) -> int:
    """A number; what is not more than 0 means the default, as in nats-server."""
    found = fields.number(name) if fields is not None else None
    return max(found or 0, 0)
