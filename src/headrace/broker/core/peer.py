"""Where a connection comes from, and what its socket has shown before a word was said."""

from __future__ import annotations

__all__ = ["NOWHERE", "Peer"]


class Peer:
    """The other end of a connection."""

    __slots__ = ("certificate", "host", "is_tls", "nonce", "port", "tls_version", "transport")

    def __init__(
        self, host: str = "", port: int = 0, *, is_tls: bool = False, transport: str = "nats"
    ) -> None:
        self.host = host
        self.port = port
        self.is_tls = is_tls
        self.transport = transport
        """``nats`` or ``websocket``."""
        self.tls_version = ""  # known once the handshake is over
        self.certificate: tuple[str, ...] = ()
        """The names in the client's verified certificate: those of people first, the subject last."""
        self.nonce = ""
        """What INFO asked the client to sign."""


NOWHERE = Peer()
"""Of a client nothing is known of."""
