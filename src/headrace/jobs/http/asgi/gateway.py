"""An optional gateway in front of everything: requests signed with a shared secret (`X-Broker-Signature`).

``t=<unix seconds>,v1=<hex>``: HMAC-SHA256 over ``<t>.<body>``, as the predecessor's clients sign. With
``v2`` the method, the path and the query are signed too, so that a signed request cannot be replayed as a
different one; a gateway can be configured to require it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from ....errors import ConfigurationError
from ...errors import JobsError

__all__ = ["Gateway"]

_FIELD: Final = "X-Broker-Signature"


class Gateway:
    """Decides whether a request is accepted. ``secrets`` are base64; any of them may have signed."""

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        tolerance_s: int = 300,
        exempt: Sequence[str] = ("/_status", "/metrics", "/health/"),
        v2_only: bool = False,
    ) -> None:
        try:
            self._keys = [base64.b64decode(secret, validate=True) for secret in secrets]
        except ValueError:
            raise ConfigurationError("gateway secret: base64 is accepted") from None
        if not self._keys or any(len(key) < 16 for key in self._keys):
            raise ConfigurationError("gateway secret: one or more of at least 16 bytes are needed")
        self._tolerance_s = tolerance_s
        self._exempt = tuple(exempt)
        self._v2_only = v2_only

    def is_exempt(self, path: str) -> bool:
        """Whether ``path`` is accepted unsigned. An entry ending in / covers all paths below it."""
        return any(
            path == entry or (entry.endswith("/") and path.startswith(entry))
            for entry in self._exempt
        )

    def check(
        self, signature: str | None, method: str, target: str, body: bytes, now_s: float
    ) -> None:
        """Return if the request is fresh and signed by one of the secrets.

        401 if the signature is missing or malformed, 403 if it is stale or does not match.
        """
        if not signature:
            raise JobsError(401, "signature_missing", "the request is not signed", _FIELD)
        parts = dict(part.strip().partition("=")[::2] for part in signature.split(","))
        timestamp = parts.get("t", "")
        version = "v2" if "v2" in parts else "v1"
        well_formed = (
            len(parts) == 2
            and timestamp.isascii()
            and timestamp.isdigit()
            and len(timestamp) <= 12
            and version in parts
        )
        if not well_formed or (self._v2_only and version == "v1"):
            wanted = "t=<unix seconds>,v2=<hex>" if self._v2_only else "t=<unix seconds>,v1=<hex>"
            raise JobsError(401, "signature_malformed", f"{wanted} is accepted", _FIELD)
        if abs(now_s - int(timestamp)) > self._tolerance_s:
            raise JobsError(403, "signature_stale", f"more than {self._tolerance_s} s off", _FIELD)
        signed = f"{timestamp}.".encode()
        if version == "v2":
            signed += f"{method}.{target}.".encode()
        signed += body
        given = parts[version].encode("utf-8", "replace")
        matched = False
        for key in self._keys:
            expected = hmac.new(key, signed, hashlib.sha256).hexdigest().encode()
            matched |= hmac.compare_digest(expected, given)
        if not matched:
            raise JobsError(403, "signature_wrong", "the signature does not match", _FIELD)
