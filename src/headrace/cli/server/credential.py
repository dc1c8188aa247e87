"""``headrace server check credential``: it asks no server."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Any

import click

from ...documents import DocumentError, read_json
from ...errors import ConfigurationError
from ..shared.units import DURATION
from ..shared.verbs import command_of
from .check import form_option, judged, limits_of
from .verdict import Verdict


def expiry_of(token: str) -> int:
    """When a token ends, in seconds since 1970; 0: it does not. Raises ConfigurationError."""
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError("it has not three parts")
        raw = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = read_json(raw)
    except (ValueError, binascii.Error, DocumentError) as error:
        raise ConfigurationError(f"its token cannot be read: {error}") from None
    expiry = claims.get("exp", 0) if isinstance(claims, dict) else None
    if not isinstance(expiry, int) or isinstance(expiry, bool) or expiry < 0:
        raise ConfigurationError(f"its token ends at {expiry!r}, which is not a time")
    return expiry


def judge_validity(
    verdict: Verdict,
    expiry: int,
    now: float,
    warn: float | None,
    critical: float | None,
    *,
    must_end: bool,
) -> None:
    """Whether a token is valid at ``now``, and for long enough."""
    if not expiry:
        if must_end:
            verdict.criticals.append("it never ends")
        verdict.fine.append("it never ends")
        return
    left = round(expiry - now, 3)
    if left <= 0:
        verdict.criticals.append(f"it has ended at {_shown(expiry)}")
    verdict.judge("expiry", left, warn, critical, unit="s", below=True)
    verdict.fine.append(f"it is valid until {_shown(expiry)}")


def _shown(expiry: int) -> str:
    try:
        return f"{datetime.fromtimestamp(expiry, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, OSError, ValueError):
        return f"{expiry} s after 1970"


def _check(file: str, validity_warn: float | None, validity_critical: float | None,
           require_expiry: bool, **more: Any) -> int:  # fmt: skip
    """Check how long a credentials file is valid. It asks no server, and shows no secret."""
    from ...client.auth.nkeys import read_credentials

    verdict = Verdict(f"credential {file}")

    def work() -> None:
        judge_validity(
            verdict,
            expiry_of(read_credentials(file).jwt),
            datetime.now(UTC).timestamp(),
            validity_warn,
            validity_critical,
            must_end=require_expiry,
        )

    return judged(verdict, more["format"], work)


credential = command_of(
    _check,
    _check,
    "credential",
    (
        click.argument("file"),
        *limits_of("validity", "valid no longer than this", DURATION),
        click.option(
            "--require-expiry/--no-require-expiry",
            default=True,
            help="whether one that never ends is critical (it is)",
        ),
    ),
    [form_option()],
)
