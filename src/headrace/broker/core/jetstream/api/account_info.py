"""What an account is told about itself: what it uses, and what it may."""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.messages import AccountInfo, AccountLimits, AccountTier, ApiStats
from ...account_options import JetStreamLimits
from ..config.options import JetStreamOptions
from .ports import Usage

__all__ = ["account_info"]

_OURS: Final = "R1"  # the tier of every stream here: there is one node
_OF_TIERS: Final = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)
"""The limits of an account whose tiers have some."""


def account_info(
    options: JetStreamOptions, usage: Usage, streams: int, api: ApiStats
) -> AccountInfo:
    """The answer to ``$JS.API.INFO``."""
    used = AccountTier(
        memory=usage.memory_bytes,
        storage=usage.storage_bytes,
        reserved_memory=usage.reserved_memory_bytes,
        reserved_storage=usage.reserved_storage_bytes,
        streams=streams,
        consumers=usage.consumers,
        limits=_limits(options.limits),
    )
    tiers = {
        name: used if name == _OURS else AccountTier(limits=_limits(limits))
        for name, limits in options.tiers
    }
    of_all = msgspec.structs.asdict(used)
    if tiers:
        of_all["limits"] = _OF_TIERS
    return AccountInfo(**of_all, domain=options.domain, api=api, tiers=tiers)


def _limits(limits: JetStreamLimits) -> AccountLimits:
    return AccountLimits(
        max_memory=limits.max_memory,
        max_storage=limits.max_storage,
        max_streams=limits.max_streams,
        max_consumers=limits.max_consumers,
        max_ack_pending=limits.max_ack_pending,
        memory_max_stream_bytes=limits.max_stream_memory,
        storage_max_stream_bytes=limits.max_stream_storage,
        max_bytes_required=limits.max_bytes_required,
    )
