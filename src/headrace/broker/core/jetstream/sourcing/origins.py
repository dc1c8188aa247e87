"""Where a stream to copy from is looked for: here, or in another account, if that lets us."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from .....api.errors import ErrorSpec
from .....api.streams import StreamSource

if TYPE_CHECKING:
    from .copies import Copies

__all__ = ["Elsewhere", "Reach"]


class Reach(NamedTuple):
    """Whose streams a source means, or why there are none."""

    copies: Copies | None
    error: ErrorSpec | None = None


class Elsewhere(Protocol):
    """Finds whose streams an external source means, as imports and exports allow it now."""

    def __call__(self, source: StreamSource, *, is_mirror: bool) -> Reach: ...
