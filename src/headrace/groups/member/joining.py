"""The options of ``join``, once for elastic and static groups, for tasks and for threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

if TYPE_CHECKING:
    from ...handling.failure import OnFailure

M = TypeVar("M")


class JoinOptions(TypedDict, Generic[M], total=False):
    """What ``Membership`` says of them. ``M`` is the kind of message that a handler gets."""

    concurrency: int
    key: Callable[[M], Hashable] | None
    on_failure: OnFailure | None
    on_active: Callable[[int], object] | None
    on_standby: Callable[[], object] | None
    on_error: Callable[[Exception], object] | None
