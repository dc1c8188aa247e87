"""What is wrong with a token."""

from __future__ import annotations

__all__ = ["TokenError"]


class TokenError(ValueError):
    """A token is not what it has to be. The text says why, and shows nothing of it."""
