"""The certificate of the HTTP listener, and how it is changed while it listens."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from ...errors import ConfigurationError

__all__ = ["TlsConfig"]


class TlsConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``[tls]``: the listener speaks TLS 1.2 and later with this certificate."""

    cert: str
    """The certificate and its chain, PEM. Read again by SIGHUP."""
    key: str
    """Its private key, PEM, without a passphrase."""

    def context(self) -> ssl.SSLContext:
        """A context with the certificate. Raises ConfigurationError naming the files that are wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Let new connections of ``context`` have the certificate as it is now. Raises ConfigurationError.

        OpenSSL takes it whole or says why not; a context that has one already is asked only after a new one
        has taken it.
        """
        try:
            context.load_cert_chain(Path(self.cert), Path(self.key), password=_none)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(
                f"tls: cannot use the certificate {self.cert!r} with the key {self.key!r}: {error}; "
                "accepted are matching PEM files without passphrase"
            ) from error


def _none() -> str:
    """Nobody is asked for a passphrase: the service has no terminal."""
    return ""
