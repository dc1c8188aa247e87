"""What a stream's store removes some at a time; see ``ports.StreamStore``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Removal", "Thinning"]


class Removal(Protocol):
    """A removal that is carried out some at a time."""

    @property
    def done(self) -> bool: ...

    @property
    def removed(self) -> int:
        """How many messages so far."""
        ...

    @property
    def gone(self) -> Sequence[int]:
        """The sequences of the last ``run``, except of those that went from the head."""
        ...

    def run(self, work: int) -> int:
        """Do about so much ``work``, in units of about 50 ns; returns how many were removed."""
        ...


class Thinning(Protocol):
    """A pass that brings every subject down to a number of messages, some at a time."""

    @property
    def done(self) -> bool: ...

    def run(self, work: int) -> list[int]:
        """Do about so much ``work``, in units of about 50 ns; returns the sequences removed."""
        ...
