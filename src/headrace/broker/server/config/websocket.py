"""The listener for WebSockets, as nats-server's files say it: the same table in both formats."""

from __future__ import annotations

from ....limits import TLS_TIMEOUT_S
from .fields import Fields, refuse
from .options import TlsOptions, WebSocketOptions
from .syntax import ConfigValue


def read_websocket(value: ConfigValue) -> WebSocketOptions | None:
    """``{ port, host, no_tls, tls, … }``; None without a port. Raises ConfigurationError."""
    fields = Fields(value, "websocket")
    host, port = fields.text("host", "net"), fields.number("port")
    listen = fields.text("listen")
    no_tls = fields.switch("no_tls")
    tls = fields.take("tls")
    same_origin = fields.switch("same_origin")
    origins = fields.take("allowed_origins", "allowed_origin", "allow_origins", "origins")
    compression = fields.switch("compression")
    timeout = fields.seconds("handshake_timeout")
    fields.no_more(
        "not supported in websocket; accepted are host, port, listen, no_tls, tls, same_origin, "
        "allowed_origins, compression and handshake_timeout"
    )
    if listen is not None:
        host, _, digits = listen.rpartition(":")
        if not digits.removeprefix("-").isdecimal():
            refuse(value, "listen", 'not accepted; it must be "host:port"')
        port = int(digits)
    if port is None:
        return None
    if bool(no_tls) == (tls is not None):
        refuse(value, "websocket", "needs tls { … }, or no_tls: true to go without")
    allowed = [] if origins is None else _texts(origins)
    return WebSocketOptions(
        port=port,
        host=host or None,
        tls=None if tls is None else read_tls(tls),
        same_origin=same_origin,
        allowed_origins=tuple(allowed),
        compression=bool(compression),
        handshake_timeout=timeout or TLS_TIMEOUT_S,
    )


def read_tls(value: ConfigValue) -> TlsOptions:
    """``{ cert_file, key_file, ca_file, verify, timeout }``. Raises ConfigurationError."""
    fields = Fields(value, "tls")
    certificate, key = fields.text("cert_file"), fields.text("key_file")
    ca_file, verify = fields.text("ca_file"), fields.switch("verify")
    timeout = fields.seconds("timeout")
    fields.no_more("not supported in tls of websocket")
    if certificate is None or key is None:
        refuse(value, "tls", "needs both cert_file and key_file")
    return TlsOptions(
        certificate_file=certificate,
        key_file=key,
        ca_file=ca_file,
        verify_clients=bool(verify),
        timeout=timeout or TLS_TIMEOUT_S,
    )


def _texts(value: ConfigValue) -> list[str]:
    items = value.content if isinstance(value.content, list) else [value]
    for item in items:
        if not isinstance(item.content, str) or not item.content:
            refuse(item, "allowed_origins", "not accepted; it must be a list of texts")
    return [str(item.content) for item in items]
