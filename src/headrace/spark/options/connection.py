"""The options of a connection, common to reading and writing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...api.names import API_PREFIX
from ...client.net.handshake import Credentials
from ...client.net.nkeys import KeyPair, read_credentials
from ...errors import ConfigurationError
from .table import Accepted, Option, flag, name, seconds, subject, text, texts

# fmt: off
CONNECTION_OPTIONS: Final[tuple[Option, ...]] = (
    Option("servers", "nats://127.0.0.1:4222",
        "Server URLs, separated by commas (nats:// or tls://): the first that answers, then others of its "
        "cluster.", texts),
    Option("user", "", "User name.", text),
    Option("password", "", "Password.", text),
    Option("token", "", "Authentication token.", text),
    Option("creds", "",
        "A credentials file with a user's JWT and NKEY seed, on the driver and on every executor.", text),
    Option("nkeySeed", "", "The seed of a user's NKEY (SU…).", text),
    Option("jwt", "", "The JWT of the user whose seed is nkeySeed.", text),
    Option("tls", "false", "Require TLS (implied by tls:// URLs).", flag),
    Option("tlsCa", "", "File of the certificate authorities to trust; default: the system's.", text),
    Option("tlsCert", "", "Client certificate, a PEM file.", text),
    Option("tlsKey", "", "Key of the client certificate, a PEM file.", text),
    Option("tlsHostname", "", "The name to expect in the server's certificate.", text),
    Option("tlsFirst", "false", "Start TLS before the server says a word (its handshake_first).", flag),
    Option("jetstreamDomain", "", "The JetStream domain to talk to, such as that of a leaf node.", name),
    Option("jetstreamApiPrefix", "$JS.API",
        "The subject under which the JetStream API is, such as one imported from another account.", subject),
    Option("inboxPrefix", "_INBOX",
        "The first tokens of every reply subject, for users who may subscribe only to their own.", subject),
    Option("connectTimeout", "5s", "How long to wait for one server to accept a connection.", seconds),
    Option("requestTimeout", "5s", "How long to wait for an answer of the JetStream API.", seconds),
)
# fmt: on
# Spark hides the values of options named url or secret where it shows plans, and no other ones of ours.
CONNECTION_ALIASES: Final = {"url": "servers", "nkeysecret": "nkeySeed"}


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the server. Picklable; its ``repr`` shows no secret."""

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    token: str = ""
    creds: str = ""
    nkey_seed: str = ""
    jwt: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_hostname: str = ""
    tls_first: bool = False
    api_prefix: str = API_PREFIX
    inbox_prefix: str = "_INBOX"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 5.0

    def __repr__(self) -> str:
        # A URL may also contain a password.
        shown = ", ".join(re.sub(r"//[^/@]*@", "//***@", server) for server in self.servers)
        return f"Connection({shown})"

    def credentials(self, nonce: str) -> Credentials:
        """What CONNECT says of us to a server whose INFO has this nonce.

        Raises:
            ConfigurationError: the credentials file cannot be read.
        """
        if self.creds:
            user = read_credentials(self.creds)
            return Credentials(jwt=user.jwt, signature=user.key.sign_nonce(nonce))
        if self.nkey_seed:
            key = KeyPair(self.nkey_seed)
            nkey = "" if self.jwt else key.public_key
            return Credentials(jwt=self.jwt, nkey=nkey, signature=key.sign_nonce(nonce))
        return Credentials(self.user, self.password, self.token)


def connection_of(values: Mapping[str, Any], accepted: Accepted) -> Connection:
    """The connection of collected options.

    Raises:
        ConfigurationError: two options contradict each other, or there is no server.
    """
    ways = [
        values["token"],
        values["user"] or values["password"],
        values["creds"],
        values["nkeySeed"] or values["jwt"],
    ]
    if sum(map(bool, ways)) > 1:
        raise accepted.error(
            "give one way to log in: either 'token', or 'user' and 'password', or 'creds', or 'nkeySeed' "
            "(with 'jwt' or without)"
        )
    if values["jwt"] and not values["nkeySeed"]:
        raise accepted.error("'jwt' needs 'nkeySeed', the seed that proves it")
    if values["nkeySeed"]:
        try:
            KeyPair(values["nkeySeed"])
        except ConfigurationError as error:  # its text has nothing of the seed
            raise accepted.error(f"option 'nkeySeed': {error}") from None
    api_prefix = values["jetstreamApiPrefix"]
    if values["jetstreamDomain"]:
        if values["jetstreamApiPrefix"] != API_PREFIX:
            raise accepted.error("give either 'jetstreamDomain' or 'jetstreamApiPrefix'")
        api_prefix = f"$JS.{values['jetstreamDomain']}.API"
    if bool(values["tlsCert"]) != bool(values["tlsKey"]):
        raise accepted.error("'tlsCert' and 'tlsKey' belong together")
    if not values["servers"]:
        raise accepted.error("option 'servers' names no server")
    return Connection(
        servers=values["servers"],
        user=values["user"],
        password=values["password"],
        token=values["token"],
        creds=values["creds"],
        nkey_seed=values["nkeySeed"],
        jwt=values["jwt"],
        tls=values["tls"],
        tls_ca=values["tlsCa"],
        tls_cert=values["tlsCert"],
        tls_key=values["tlsKey"],
        tls_hostname=values["tlsHostname"],
        tls_first=values["tlsFirst"],
        api_prefix=api_prefix,
        inbox_prefix=values["inboxPrefix"],
        connect_timeout_s=values["connectTimeout"],
        request_timeout_s=values["requestTimeout"],
    )
