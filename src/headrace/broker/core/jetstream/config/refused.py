"""A request that is refused, wherever that is noticed."""

from __future__ import annotations

from typing import Any, Final

from .....api.errors import Errors, ErrorSpec

FORBIDDEN_IN_NAMES: Final = frozenset(".*>/\\ \t\r\n\f")
"""Characters that no name of a stream or consumer has: it is a token of a subject, and a directory."""


class Refused(Exception):  # noqa: N818 - it is an answer, not a failure of ours
    """A request is refused; ``error`` is the answer."""

    def __init__(self, error: ErrorSpec, **values: Any) -> None:
        self.error = error.with_(**values) if values else error
        super().__init__(self.error.description)


def invalid(text: str) -> Refused:
    """The refusal of a stream's configuration, in the public server's words."""
    return Refused(Errors.STREAM_INVALID_CONFIG, err=text)
