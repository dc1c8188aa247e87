"""What a client's certificate says its owner is called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["certificate_names"]

_SHORT: Final = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU",
    "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST",
    "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
    "emailAddress": "emailAddress",
}  # fmt: skip
_ALTERNATIVES: Final = ("email", "DNS", "URI")


def certificate_names(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """The names to look for among users, in nats-server's order; none without a verified certificate.

    E-mail addresses, host names and URIs, then the whole subject: ``CN=ann,O=mill``, with its parts as
    RFC 4514 writes them (the last one first) and as they stand in the certificate.
    """
    tls = transport.get_extra_info("ssl_object")
    certificate: dict[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
    names = [
        value
        for kind in _ALTERNATIVES
        for found, value in certificate.get("subjectAltName", ())
        if found == kind
    ]
    parts = [_part(rdn) for rdn in certificate.get("subject", ())]
    if parts:
        names += [",".join(reversed(parts)), ",".join(parts)]
    return tuple(dict.fromkeys(names))


def _part(rdn: Iterable[tuple[str, str]]) -> str:
    return "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in rdn)


def _escaped(value: str) -> str:
    """With what has a meaning between parts escaped (RFC 4514)."""
    return "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
