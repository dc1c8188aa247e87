"""What waits in a group, without ``async``: as ``headrace.groups.lag``."""

from __future__ import annotations

from ...groups.blocking.lag import measure
from ...groups.lag import GroupLag, MemberLag, PartitionLag, Pin, Rates, rates

__all__ = ["GroupLag", "MemberLag", "PartitionLag", "Pin", "Rates", "measure", "rates"]
