"""The errors of the job service: an HTTP status, a code, a sentence, a field."""

from __future__ import annotations

from typing import Final

from ..errors import HeadraceError

__all__ = [
    "NOT_THE_RIGHT_ONE",
    "DatabaseUnavailableError",
    "JobsError",
    "bad_request",
    "forbidden",
    "not_found",
]

NOT_THE_RIGHT_ONE: Final = "wrong_token"
"""Code of what is refused for a token."""


class JobsError(HeadraceError):
    """An operation was rejected; nothing of it was done.

    Attributes:
        status: the HTTP status; 0 if no answer came.
        code: a stable word for programs, for example ``lease_lost``.
        message: a sentence for people: what was wrong and what is accepted.
        field: the offending parameter, header or body field, if there is one.
        retry_after_s: when a retry makes sense, if known.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(status, code, message, field)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        where = f" ({self.field})" if self.field else ""
        answer = f"{self.status} {self.code}: " if self.status else ""  # 0: there was none
        return f"{answer}{self.message}{where}"


class DatabaseUnavailableError(JobsError):
    """The database did not answer, is ``busy``, or the connection broke. A write may have happened."""

    def __init__(self, reason: str, code: str = "database_unavailable") -> None:
        super().__init__(
            503,
            code,
            f"the database did not answer ({reason}); the request may be repeated",
            retry_after_s=1.0,
        )


def not_found(what: str, field: str) -> JobsError:
    """404: the path names something that does not exist."""
    return JobsError(404, "not_found", f"there is no such {what}", field)


def forbidden(field: str) -> JobsError:
    """403: a token is missing or wrong; the error does not say which."""
    return JobsError(403, NOT_THE_RIGHT_ONE, "the token is missing or not the right one", field)


def bad_request(code: str, message: str, field: str | None = None) -> JobsError:
    """400: the request is malformed or breaks a rule that the sentence names."""
    return JobsError(400, code, message, field)
