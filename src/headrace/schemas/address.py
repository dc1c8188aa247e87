"""Where a registry is, and how to log in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..errors import ConfigurationError


class Words(NamedTuple):
    """How errors name what was configured, and what they begin with."""

    before: str = ""
    user: str = "user"
    password: str = "password"  # noqa: S105 - it is a word
    ca: str = "ca"


NEUTRAL: Final = Words()


@dataclass(frozen=True, slots=True)
class Registry:
    """Where the registry is, and how to log in. Picklable; its ``repr`` shows no secret.

    ``url`` has no slash at its end; "" means that there is none. ``subject`` has the schema to read or to
    write with. ``ca`` is a file of the authorities to trust; "" means the system's.
    """

    url: str = ""
    subject: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    words: Words = field(default=NEUTRAL, repr=False)


def checked_url(text: str, words: Words = NEUTRAL) -> str:
    """A URL of a registry, without a slash at its end. Raises ConfigurationError: what is accepted."""
    accepted = ConfigurationError("a URL such as https://registry.example.com:8081")
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:
        raise accepted from None
    if found.scheme not in ("http", "https") or not found.hostname or port == 0:
        raise accepted
    if found.username is not None or found.query or found.fragment:
        raise ConfigurationError(
            f"a URL without a user ({words.user}, {words.password}) and without a query"
        )
    return text.rstrip("/")
