"""The options of a connection, common to reading and writing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .table import Accepted, Option
from .values import flag, seconds, text, texts

# fmt: off
CONNECTION_OPTIONS: Final[tuple[Option, ...]] = (
    Option("servers", "nats://127.0.0.1:4222",
        "Server URLs, separated by commas (nats:// or tls://); the first that answers is used.", texts),
    Option("user", "", "User name.", text),
    Option("password", "", "Password.", text),
    Option("token", "", "Authentication token.", text),
    Option("tls", "false", "Require TLS (implied by tls:// URLs).", flag),
    Option("tlsCa", "", "File of the certificate authorities to trust; default: the system's.", text),
    Option("tlsCert", "", "Client certificate, a PEM file.", text),
    Option("tlsKey", "", "Key of the client certificate, a PEM file.", text),
    Option("tlsHostname", "", "The name to expect in the server's certificate.", text),
    Option("connectTimeout", "5s", "How long to wait for one server to accept a connection.", seconds),
    Option("requestTimeout", "5s", "How long to wait for an answer of the JetStream API.", seconds),
)
# fmt: on
CONNECTION_ALIASES: Final = {"url": "servers"}


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the server. Picklable; its ``repr`` shows no secret."""

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    token: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_hostname: str = ""
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0

    def __repr__(self) -> str:
        # A URL may also contain a password.
        shown = ", ".join(re.sub(r"//[^/@]*@", "//***@", server) for server in self.servers)
        return f"Connection({shown})"


def connection_of(values: Mapping[str, Any], accepted: Accepted) -> Connection:
    """The connection of collected options.

    Raises:
        ConfigurationError: two options contradict each other, or there is no server.
    """
    if values["token"] and (values["user"] or values["password"]):
        raise accepted.error("give either 'token', or 'user' and 'password'")
    if bool(values["tlsCert"]) != bool(values["tlsKey"]):
        raise accepted.error("'tlsCert' and 'tlsKey' belong together")
    if not values["servers"]:
        raise accepted.error("option 'servers' names no server")
    return Connection(
        servers=values["servers"],
        user=values["user"],
        password=values["password"],
        token=values["token"],
        tls=values["tls"],
        tls_ca=values["tlsCa"],
        tls_cert=values["tlsCert"],
        tls_key=values["tlsKey"],
        tls_hostname=values["tlsHostname"],
        connect_timeout_s=values["connectTimeout"],
        request_timeout_s=values["requestTimeout"],
    )
