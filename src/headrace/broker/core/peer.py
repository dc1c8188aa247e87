"""What is known of a client: what its socket shows, and what it says about itself in CONNECT."""

from __future__ import annotations

from typing import Any

import msgspec

from ...api.base import read_typed


class Peer(msgspec.Struct, eq=False):
    """The other end of a connection."""

    host: str = ""
    port: int = 0
    is_tls: bool = False
    transport: str = "nats"
    """``nats`` or ``websocket``."""
    tls_version: str = ""  # known once the handshake is over
    certificate: tuple[str, ...] = ()
    """The names in the client's verified certificate: those of people first, the subject last."""
    nonce: str = ""
    """What INFO asked the client to sign."""


NOWHERE = Peer()
"""Of a client nothing is known of."""


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One CONNECT document. Unknown keys are ignored: clients are newer than servers.

    The defaults are those of a client that says nothing (a person with telnet): everything is
    confirmed and checked.
    """

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    tls_required: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    jwt: str = ""

    def __repr__(self) -> str:
        return f"ConnectOptions(name={self.name!r}, lang={self.lang!r}, version={self.version!r})"


UNSAID = ConnectOptions()
"""The options in force before CONNECT."""


def decode_connect(document: bytes) -> ConnectOptions:
    """Read a CONNECT document. Raises ValueError (msgspec's) for anything but such an object."""
    said = read_typed(document, dict[str, Any])
    # Some clients write null for what they leave out.
    return msgspec.convert({k: v for k, v in said.items() if v is not None}, ConnectOptions)


def described(peer: Peer, options: ConnectOptions, user: str, rtt_ns: int) -> dict[str, Any]:
    """What advisories show of a client: where it is and what it has said, without what it has not."""
    said = {
        "host": peer.host,
        "user": user,
        "name": options.name,
        "lang": options.lang,
        "ver": options.version,
        "rtt": rtt_ns,
    }
    return {key: value for key, value in said.items() if value}
