"""Where to connect to, and as whom: options, ``NATS_…`` variables, contexts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...errors import ConfigurationError
from .units import DURATION

if TYPE_CHECKING:
    from ...client import Context, Options

_OPTIONS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (("-s", "--server"), "URL", "server, or several separated by commas [NATS_URL]"),
    (("--context",), "NAME", "a context of the nats tool [NATS_CONTEXT, or the selected one]"),
    (("--user",), "NAME", "user, or a token if there is no password [NATS_USER]"),
    (("--password",), "TEXT", "password of the user [NATS_PASSWORD]"),
    (("--token",), "TEXT", "token [NATS_TOKEN]"),
    (("--creds",), "FILE", "credentials file with a JWT and a seed [NATS_CREDS]"),
    (("--nkey",), "FILE", "file with an NKEY seed [NATS_NKEY]"),
    (("--tlscert",), "FILE", "client certificate [NATS_CERT]"),
    (("--tlskey",), "FILE", "key of the client certificate [NATS_KEY]"),
    (("--tlsca",), "FILE", "certificates of the authority to trust [NATS_CA]"),
    (("--js-domain",), "NAME", "JetStream domain [NATS_JS_DOMAIN]"),
    (("--js-api-prefix",), "SUBJECT", "where the subjects of the JetStream API begin"),
    (("--inbox-prefix",), "SUBJECT", "where the subjects of replies begin [NATS_INBOX_PREFIX]"),
    (("--connection-name",), "NAME", "the name the server shows for this connection"),
)
_VARIABLES: Final = {
    "server": "NATS_URL",
    "tlscert": "NATS_CERT",
    "tlskey": "NATS_KEY",
    "tlsca": "NATS_CA",
    "js_domain": "NATS_JS_DOMAIN",
    "inbox_prefix": "NATS_INBOX_PREFIX",
}
_LOGINS: Final = ("user", "password", "token", "creds", "nkey")
CONNECTION: Final = frozenset(
    [names[-1][2:].replace("-", "_") for names, _, _ in _OPTIONS] + ["timeout"]
)
"""The names of these options among the parameters of a command."""

TIMEOUT_DEFAULT_S: Final = 5.0


def connection_options(*, hidden: bool = False) -> list[click.Option]:
    """The options; none has a default, so that what is given above a command counts below it."""
    options = [
        click.Option(names, metavar=metavar, default=None, help=text, hidden=hidden)
        for names, metavar, text in _OPTIONS
    ]
    timeout = click.Option(
        ["--timeout"],
        type=DURATION,
        metavar="DURATION",
        default=None,
        help="how long to wait for an answer (5s)",
        hidden=hidden,
    )
    return [*options, timeout]


@dataclass(frozen=True)
class Where:
    """Where to connect to.

    Attributes:
        context: servers, credentials, TLS, JetStream domain.
        timeout: seconds to wait for an answer.
    """

    context: Context
    timeout: float

    @property
    def servers(self) -> str:
        """The URLs."""
        return self.context.servers


def given_above(context: click.Context) -> dict[str, Any]:
    """The connection options of this command and of the groups above it; the innermost counts."""
    found: dict[str, Any] = {}
    here: click.Context | None = context
    while here is not None:
        for name in CONNECTION & here.params.keys():
            if found.get(name) is None:
                found[name] = here.params[name]
        here = here.parent
    return {name: value for name, value in found.items() if value is not None}


def where(given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Where:
    """Where these options lead. Raises ConfigurationError."""
    from ...client import read_context

    variables = dict(os.environ if environ is None else environ)
    logins = {name: given[name] for name in _LOGINS if name in given}
    if logins:  # a way to log in that is typed replaces any other
        for name in _LOGINS:
            variables.pop(f"NATS_{name.upper()}", None)
    for name, variable in _VARIABLES.items():
        if name in given:
            variables[variable] = given[name]
    context = read_context(given.get("context", ""), environ=variables)
    if not context.servers.strip():
        raise ConfigurationError("no server is given; give --server, or set NATS_URL")
    timeout = float(given.get("timeout", TIMEOUT_DEFAULT_S))
    options = replace(
        context.options,
        name=given.get("connection_name", "headrace"),
        request_timeout=timeout,
        connect_timeout=timeout,
        delivery_timeout=timeout,
    )
    if logins:
        options = _with_login(options, logins)
    prefix = given.get("js_api_prefix", context.prefix)
    domain = "" if "js_api_prefix" in given else context.domain
    return Where(replace(context, options=options, prefix=prefix, domain=domain), timeout)


def _with_login(options: Options, given: Mapping[str, str]) -> Options:
    """The options with the one way to log in that is typed. Raises ConfigurationError for several."""
    ways = [name for name in ("user", "token", "creds", "nkey") if name in given]
    if len(ways) != 1:
        raise ConfigurationError("give one way to log in: --user, --token, --creds or --nkey")
    if "password" in given and ways != ["user"]:
        raise ConfigurationError("--password needs --user")
    user, token = given.get("user", ""), given.get("token", "")
    if user and "password" not in given:  # the tool's rule: a lone user is a token
        user, token = "", user
    return replace(
        options,
        user=user,
        password=given.get("password", ""),
        token=token,
        credentials_file=given.get("creds", ""),
        nkey_seed=_seed(given.get("nkey", "")),
    )


def _seed(path: str) -> str:
    try:
        return Path(path).expanduser().read_text().strip() if path else ""
    except OSError as error:
        raise ConfigurationError(f"--nkey {path}: {error.strerror}") from None
