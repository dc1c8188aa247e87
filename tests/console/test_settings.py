from __future__ import annotations

from typing import Any

import pytest

from headrace.console import Settings
from headrace.errors import ConfigurationError


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"host": "0.0.0.0"}, "can be reached from other machines; give a password"),
        ({"host": "example.org"}, "can be reached from other machines"),
        ({"port": 70000}, "accepted: 0 to 65535"),
        ({"password": "short"}, "8 or more characters"),
        ({"interval_s": 0.0}, "accepted: 0.1 to 3600 seconds"),
        ({"jobs": "localhost:80"}, "accepted: http://… or https://…"),
    ],
)
def test_what_is_not_accepted_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("(", r"\(")):
        Settings(**values)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_needs_no_password(host: str) -> None:
    assert Settings(host=host).password == ""


def test_a_password_opens_other_addresses_and_is_not_shown() -> None:
    settings = Settings(host="0.0.0.0", password="correct horse", jobs_token="secret")
    assert "horse" not in repr(settings)
    assert "secret" not in repr(settings)
