"""What waits in a group, without ``async``: as ``headrace.groups.lag``."""

from __future__ import annotations

from ...groups import lag as aio
from ...groups.blocking import verb
from ...groups.lag import GroupLag, MemberLag, PartitionLag, Pin, Rates, Trouble, rates

__all__ = ["GroupLag", "MemberLag", "PartitionLag", "Pin", "Rates", "Trouble", "measure", "rates"]

measure = verb(aio.measure)
