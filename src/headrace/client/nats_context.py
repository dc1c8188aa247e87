"""NATS contexts and ``NATS_*`` variables: how to connect, as the ``nats`` tool and others keep it.

A context is a JSON file ``<configuration>/nats/context/<name>.json``; the selected one is named in
``<configuration>/nats/context.txt``. The configuration directory is ``$XDG_CONFIG_HOME`` or ``~/.config``.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ..documents import DocumentError, read_typed
from ..errors import ConfigurationError
from .net.options import Options

DEFAULT_URL: Final = "nats://127.0.0.1:4222"


class _File(msgspec.Struct):
    """The fields of a context file that say how to connect; others are left alone. The last block would
    change how, and is not followed: better an error than another account, or none."""

    url: str = ""
    token: str = ""
    user: str = ""
    password: str = ""
    creds: str = ""
    nkey: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    inbox_prefix: str = ""
    tls_first: bool = False

    nsc: str = ""
    user_jwt: str = ""
    socks_proxy: str = ""
    windows_cert_store: str = ""


_NOT_FOLLOWED: Final = {
    "nsc": "write a credentials file (nsc generate creds) and name it as creds",
    "user_jwt": "put the JWT and the seed into a credentials file and name it as creds",
    "socks_proxy": "connect without a SOCKS proxy, or through a WebSocket",
    "windows_cert_store": "name the certificate as files: cert, key and ca",
}

_VARIABLES: Final = {
    "NATS_URL": "url",
    "NATS_TOKEN": "token",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_CREDS": "creds",
    "NATS_NKEY": "nkey",
    "NATS_CERT": "cert",
    "NATS_KEY": "key",
    "NATS_CA": "ca",
    "NATS_JS_DOMAIN": "jetstream_domain",
    "NATS_SOCKS_PROXY": "socks_proxy",
    "NATS_INBOX_PREFIX": "inbox_prefix",
}


@dataclass(frozen=True, slots=True)
class Context:
    """How to connect: ``connect(context.servers, options=context.options)``.

    Attributes:
        name: the context's name, or "" when the variables alone say it.
        servers: one URL or several separated by commas.
        options: credentials, TLS, inbox prefix.
        domain, prefix: what ``connection.jetstream(domain=…, prefix=…)`` is to be given.
    """

    name: str
    servers: str
    options: Options
    domain: str = ""
    prefix: str = ""


def read_context(name: str = "", *, environ: Mapping[str, str] | None = None) -> Context:
    """The context ``name``, or the one ``NATS_CONTEXT`` names, or the selected one, or none at all.

    ``NATS_…`` variables win over the file, setting by setting. Of several ways to log in the first of these
    counts, as for the tool: user and password, creds, nkey, token. ``NATS_USER`` without ``NATS_PASSWORD`` is
    a token.

    Raises:
        ConfigurationError: the context does not exist, or its file or a setting in it is wrong, or it says
            something that this client does not do (``nsc``, ``user_jwt``, ``socks_proxy``).
    """
    variables = os.environ if environ is None else environ
    directory = _directory(variables)
    name = name or variables.get("NATS_CONTEXT", "") or _selected(directory)
    settings = _read(directory, name) if name else _File()
    given = {field: variables.get(variable, "") for variable, field in _VARIABLES.items()}
    if given["user"] and not given["password"]:  # the tool's rule: a lone user is a token
        given["user"], given["token"] = "", given["user"]
    for field, value in given.items():
        if value:
            setattr(settings, field, value)
    for field, instead in _NOT_FOLLOWED.items():
        if getattr(settings, field):
            raise ConfigurationError(
                f"context {name!r} has {field}, which is not supported here; {instead}"
            )
    _keep_one_login(settings)
    return Context(
        name,
        settings.url or DEFAULT_URL,
        Options(
            user=settings.user,
            password=settings.password,
            token=settings.token,
            nkey_seed=_nkey_seed(settings.nkey),
            credentials_file=settings.creds,
            tls=_tls(settings),
            tls_first=settings.tls_first,
            inbox_prefix=settings.inbox_prefix or "_INBOX",
        ),
        settings.jetstream_domain,
        settings.jetstream_api_prefix,
    )


def _keep_one_login(settings: _File) -> None:
    """Forget every way to log in but the first, in the order of the tool."""
    ways = ("user", "creds", "nkey", "token")
    first = next((way for way in ways if getattr(settings, way)), "")
    for way in ways:
        if way != first:
            setattr(settings, way, "")
    if first != "user":
        settings.password = ""


def _directory(variables: Mapping[str, str]) -> Path:
    base = variables.get("XDG_CONFIG_HOME", "")
    home = Path(variables.get("HOME", "") or Path.home())
    return (Path(base) if base else home / ".config") / "nats"


def _selected(directory: Path) -> str:
    try:
        return (directory / "context.txt").read_text().strip()
    except OSError:
        return ""  # none was ever selected


def _read(directory: Path, name: str) -> _File:
    if name in (".", "..") or "/" in name or "\\" in name:
        raise ConfigurationError(f"context name {name!r} is not a file name")
    file = directory / "context" / f"{name}.json"
    try:
        return read_typed(file.read_bytes(), _File)
    except FileNotFoundError:
        known = sorted(path.stem for path in (directory / "context").glob("*.json"))
        raise ConfigurationError(
            f"there is no context {name!r}; there are: {', '.join(known) or 'none'} in {directory}"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"context {name!r}: {error.strerror}") from None
    except DocumentError as error:
        raise ConfigurationError(f"context {name!r}: {error}") from None


def _nkey_seed(path: str) -> str:
    """The seed out of the file a context names."""
    if not path:
        return ""
    try:
        return Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"NKEY file {path!r}: {error.strerror}") from None


def _tls(settings: _File) -> ssl.SSLContext | bool:
    if not (settings.cert or settings.key or settings.ca):
        return False
    if bool(settings.cert) != bool(settings.key):
        raise ConfigurationError("a client certificate needs both cert and key")
    try:
        ca = str(Path(settings.ca).expanduser()) if settings.ca else None
        context = ssl.create_default_context(cafile=ca)
        if settings.cert:
            context.load_cert_chain(
                Path(settings.cert).expanduser(), Path(settings.key).expanduser()
            )
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"TLS files of the context: {error}") from None
    return context
