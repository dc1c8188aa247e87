"""Standard Webhooks 1.0 signatures (``v1``: HMAC-SHA256), with every valid secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from ..errors import ConfigurationError, HeadraceError

__all__ = ["WebhookVerificationError", "new_secret", "sign", "verify"]

_PREFIX: Final = "whsec_"
_TOLERANCE_S: Final = 300


class WebhookVerificationError(HeadraceError):
    """The request was not signed with any of the secrets, or is too old or too new."""


def new_secret() -> str:
    """A secret of 256 random bits, as ``whsec_`` and base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(live: Sequence[str], webhook_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers. Receivers accept any of the signatures, so secrets rotate without a gap.

    ``webhook_id`` must be ours and without a dot (ValueError): it is part of the signed text.
    """
    if "." in webhook_id:
        raise ValueError(f"webhook_id {webhook_id!r}: a dot would make the signed text ambiguous")
    signatures = [_signature(secret, webhook_id, timestamp_s, body) for secret in live]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def verify(live: Sequence[str], headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    """Check, as a receiver, that a request is genuine; otherwise raise :class:`WebhookVerificationError`.

    ``headers`` are looked up in lower case. A timestamp more than 5 minutes off is rejected.
    """
    webhook_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    # Ours is ASCII without a dot; whatever else is there is not encoded, but refused.
    if (
        not webhook_id.isascii()
        or not webhook_id
        or not timestamp.isascii()
        or not timestamp.isdigit()
        or len(timestamp) > 12
    ):
        raise WebhookVerificationError("webhook-id or webhook-timestamp is missing or malformed")
    if abs(now_s - int(timestamp)) > _TOLERANCE_S:
        raise WebhookVerificationError(f"the timestamp is more than {_TOLERANCE_S} s off")
    expected = [_signature(secret, webhook_id, int(timestamp), body) for secret in live]
    matched = False
    for entry in headers.get("webhook-signature", "").split(" "):
        version, _, given = entry.partition(",")
        if version == "v1":
            # Every pair is compared, so that the time reveals nothing.
            for signature in expected:
                matched |= hmac.compare_digest(signature.encode(), given.encode("utf-8", "replace"))
    if not matched:
        raise WebhookVerificationError("no signature matches")


def _signature(secret: str, webhook_id: str, timestamp_s: int, body: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise ConfigurationError("a signing secret is `whsec_` and base64") from None
    signed = f"{webhook_id}.{timestamp_s}.".encode() + body
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
