"""Names chosen by users, generated names, and tokens."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import lru_cache
from typing import Final

from ..identity import MessageIdentity
from . import limits
from .errors import JobsError, bad_request, not_found

__all__ = [
    "ascii_host",
    "carried",
    "check_header",
    "check_id",
    "check_text",
    "check_token",
    "hash_token",
    "id_in_stream",
    "is_job_number",
    "job_number",
    "key_id_of",
    "new_key",
    "new_lease",
    "new_message_id",
    "new_token",
    "shown_id",
    "token_matches",
    "tokens_equal",
]

_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.ID_CHARS_MAX}}}\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_NOT_CARRIED: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]|^[ \t]|[ \t]\Z")
_KEY: Final = re.compile(r"hrk_([0-9a-f]{16})_[A-Za-z0-9_-]{32}\Z")
_KEY_PREFIX: Final = "hrk_"
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_JOB: Final = re.compile(r"[1-9][0-9]{0,17}\Z")


def check_id(value: str, field: str) -> str:
    """Return ``value`` if it is a valid id; otherwise 400. Dots alone would be a path segment."""
    if not _ID.match(value) or value in {".", ".."}:
        raise bad_request(
            "invalid_id",
            f"an id is 1 to {limits.ID_CHARS_MAX} of the characters A-Z a-z 0-9 . _ -",
            field,
        )
    return value


def ascii_host(host: str) -> str:
    """The host of a URL as names are looked up: what is not ASCII by IDNA 2008, and as UTS 46 maps it.

    IDNA 2003, which Python's own codec follows, would make ``strasse.de`` of ``straße.de``: the host of
    somebody else. Raises ValueError for what IDNA 2008 has no name for.
    """
    if host.isascii():
        return host
    import idna

    return idna.encode(host, uts46=True).decode("ascii")


def check_text(value: str, field: str, chars_max: int) -> str:
    """Return ``value`` if it is short enough and has no control characters; otherwise 400."""
    if len(value) > chars_max:
        raise bad_request("too_long", f"at most {chars_max} characters are accepted", field)
    if _CONTROL.search(value):
        raise bad_request("control_character", "control characters are not accepted", field)
    return value


def check_header(name: str, value: str, field: str) -> str:
    """Return ``value`` if a header of this name carries it unchanged, as UTF-8; otherwise 400."""
    if not _HEADER_NAME.match(name):
        raise bad_request("invalid_header", f"{name[:80]!r} is no name of a header", field)
    if (bad := _NOT_CARRIED.search(value)) is not None:
        raise bad_request(
            "invalid_header",
            f"{name} has {bad.group()!r} at {bad.start()}, which no header carries: accepted is text on one "
            "line, without control characters and without blanks at its ends",
            field,
        )
    return value


def carried(value: str) -> str:
    """The text with U+FFFD for what no header carries: of a message that cannot be refused any more."""
    return _NOT_CARRIED.sub("\ufffd", value)


def shown_id(stored: str | None) -> str:
    """The id as it was chosen: that of what was deleted has a mark; nothing: an empty string."""
    return "" if stored is None else stored.partition("~")[0]


def is_job_number(value: str) -> bool:
    """Whether a job could have this id."""
    return _JOB.match(value) is not None


def job_number(value: str) -> int:
    """The number behind a job's id; 404 for an id that cannot exist."""
    if not is_job_number(value):
        raise not_found("job", "jobId")
    return int(value)


def new_token() -> str:
    """A random token of 192 bits."""
    return secrets.token_urlsafe(24)


def new_key() -> tuple[str, str]:
    """The id of a new API key, and the key itself, of 192 random bits."""
    key_id = secrets.token_hex(8)
    return key_id, f"{_KEY_PREFIX}{key_id}_{new_token()}"


def key_id_of(given: str) -> str | None:
    """The id in a text that looks like an API key; empty if only its beginning does; None: no key."""
    if not given.startswith(_KEY_PREFIX):
        return None
    found = _KEY.match(given)
    return "" if found is None else found[1]


def new_lease() -> str:
    """A random lease token; one for all jobs of a claim, since a claim contains a job once."""
    return secrets.token_urlsafe(15)


def new_message_id() -> str:
    """A random message id, for a producer that gives none."""
    return secrets.token_hex(12)


def hash_token(token: str) -> str:
    """The stored form of a token that is only ever compared: ``salt$hash``."""
    salt = secrets.token_hex(8)
    return f"{salt}${_digest(salt, token)}"


def token_matches(stored: str, given: str) -> bool:
    """Whether ``stored`` was made from ``given``, in constant time."""
    salt, _, digest = stored.partition("$")
    return hmac.compare_digest(digest, _digest(salt, given))


def tokens_equal(expected: str, given: str) -> bool:
    """Compare two tokens in constant time."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))


def _digest(salt: str, token: str) -> str:
    return hashlib.sha256(f"{salt}${token}".encode("utf-8", "surrogateescape")).hexdigest()


def check_token(value: str, field: str) -> str:
    """Return ``value`` if it can be sent in a header; otherwise 400."""
    if (
        not value
        or len(value) > limits.TOKEN_CHARS_MAX
        or not value.isascii()
        or not value.isprintable()
    ):
        raise JobsError(
            400,
            "invalid_token",
            f"a token is 1 to {limits.TOKEN_CHARS_MAX} printable ASCII characters",
            field,
        )
    return value


def id_in_stream(message: MessageIdentity) -> str:
    """The id of a stream's message: another message that is given its sequence has another one."""
    return f"{_in_ids(message.stream)}.{message.sequence}.{message.timestamp_ns}"


@lru_cache(64)
def _in_ids(stream: str) -> str:
    return _UNUSUAL.sub("_", stream)[:200]
