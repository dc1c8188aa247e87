"""Who has given the password, and who is made to wait after wrong ones."""

from __future__ import annotations

import pytest

from headrace.console.guard import (
    FAILURES_MAX,
    FAILURES_S,
    LOGIN_S,
    LOGINS_MAX,
    Logins,
    TooManyFailuresError,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_right_password_gives_a_token_that_ends() -> None:
    clock = Clock()
    logins = Logins("correct horse", clock)
    token = logins.log_in("correct horse")
    assert token is not None
    assert logins.knows(token)
    assert not logins.knows(token + "x")
    assert not logins.knows("")
    clock.now += LOGIN_S
    assert not logins.knows(token)


def test_leaving_ends_a_token() -> None:
    logins = Logins("correct horse", Clock())
    token = logins.log_in("correct horse")
    assert token is not None
    logins.log_out(token)
    assert not logins.knows(token)


def test_guessing_is_slowed_down_even_for_who_guesses_right_at_last() -> None:
    clock = Clock()
    logins = Logins("correct horse", clock)
    for _ in range(FAILURES_MAX):
        assert logins.log_in("wrong") is None
    with pytest.raises(TooManyFailuresError, match="60 s"):
        logins.log_in("correct horse")
    clock.now += FAILURES_S
    assert logins.log_in("correct horse") is not None


def test_there_are_only_so_many_tokens() -> None:
    logins = Logins("correct horse", Clock())
    tokens = [logins.log_in("correct horse") or "" for _ in range(LOGINS_MAX + 1)]
    assert not logins.knows(tokens[0])
    assert logins.knows(tokens[1])
