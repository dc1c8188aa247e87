"""``measure`` of ``headrace.groups.lag`` for threads."""

from __future__ import annotations

from .. import lag as aio
from .verbs import verb

__all__ = ["measure"]

measure = verb(aio.measure)
