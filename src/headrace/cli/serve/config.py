"""The settings of ``headrace serve``: one table for the flags, the keys of the file and their types.

The names are those a NATS user types. Flags override the file, and the file overrides the defaults.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ... import limits
from ...broker.core.auth.authentication import User
from ...broker.core.options import AccountOptions, AssetLimits
from ...broker.server.config.options import BrokerOptions, TlsOptions, WebSocketOptions
from ...documents import DocumentError, parse_toml
from ...errors import ConfigurationError
from .log import FORMATS

if TYPE_CHECKING:
    from ...broker.server.config.syntax import ConfigValue

PORT_DEFAULT: Final = 4222


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a non-empty text")
    return value


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number")
    return value


def _address(value: Any) -> str:
    """A port, as a number in a file, or ``HOST:PORT``."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError("a number of seconds more than 0")
    return float(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _sync(value: Any) -> str:
    if isinstance(value, str) and (value in ("always", "os") or value.startswith("interval:")):
        return value
    raise ValueError("'always', 'os' or 'interval:<seconds>', as in 'interval:0.1'")


def _handover(value: Any) -> str:
    if value not in ("drain", "immediate"):
        raise ValueError("'drain' or 'immediate'")
    return str(value)


def _log_format(value: Any) -> str:
    if value not in FORMATS:
        raise ValueError("'text' or 'json'")
    return str(value)


def _plain(value: Any, key: str, file: str) -> Any:
    from ...broker.server.config.fields import from_plain

    return from_plain(value, key, file)


def _users(value: Any) -> list[User]:
    """The tables of nats-server's files: user, pass and permissions. Raises ConfigurationError."""
    from ...broker.server.config.accounts import read_users

    return read_users(_plain(value, "users", ""))


def _accounts(value: Any) -> list[AccountOptions]:
    """The tables of nats-server's files without their users. Raises ConfigurationError."""
    from ...broker.server.config.accounts import read_accounts

    found = read_accounts(_plain(value, "accounts", ""))
    if found.users:
        raise ConfigurationError(
            'accounts: users stand in [[users]] here, each with account = "NAME"'
        )
    return found.accounts


def _asset_limits(value: Any) -> AssetLimits:
    """The table of nats-server's files. Raises ConfigurationError."""
    from ...broker.server.config.accounts import read_asset_limits

    return read_asset_limits(_plain(value, "jetstream_limits", "")).limits


def _websocket(value: Any) -> WebSocketOptions | None:
    """The table of nats-server's files. Raises ConfigurationError."""
    from ...broker.server.config.fields import read_websocket

    return read_websocket(_plain(value, "websocket", ""))


class Setting(NamedTuple):
    """One setting. ``key`` is its name in the file; without ``usage`` it is only in the file.

    ``usage`` has the spellings of its flag, and the name of the value if it takes one.
    """

    key: str
    check: Callable[[Any], Any]
    help: str
    usage: str = ""

    @property
    def flags(self) -> list[str]:
        """The spellings of the flag."""
        return [word for word in self.usage.split() if word.startswith("-")]


# fmt: off
SETTINGS: Final = (
    Setting("addr", _text, "address to listen on (127.0.0.1)", "-a --addr --net HOST"),
    Setting("port", _whole_number, f"port for clients ({PORT_DEFAULT}; -1: any free one)", "-p --port PORT"),
    Setting("server_name", _text, "name shown to clients", "-n --name --server_name NAME"),
    Setting("jetstream", _switch, "enable JetStream (on by default, unless the file has jetstream = false)",
        "-js --jetstream"),
    Setting("domain", _text, "JetStream domain: the API is also available under $JS.<domain>.API"),
    Setting("store_dir", _text, "directory of the streams; without it they are kept in memory",
        "-sd --store_dir DIR"),
    Setting("sync", _sync,
        "when messages are synced to disk: always (before they are acknowledged), interval:<seconds>, or os",
        "--sync MODE"),
    Setting("http_host", _text, "address for monitoring (default: that for clients)"),
    Setting("http_port", _whole_number, "port for monitoring", "-m --http_port PORT"),
    Setting("websocket", _websocket, "a listener for WebSockets"),
    Setting("user", _text, "user name that clients must give", "--user USER"),
    Setting("pass", _text, "password of that user", "--pass PASSWORD"),
    Setting("auth", _text, "token that clients must give", "--auth TOKEN"),
    Setting("users", _users, "several users"),
    Setting("accounts", _accounts, "accounts with separate subjects and streams"),
    Setting("system_account", _text, "the account for server events and requests ($SYS)"),
    Setting("no_auth_user", _text, "the user for clients without credentials"),
    Setting("tls", _switch, "enable TLS (needs --tlscert and --tlskey)", "--tls"),
    Setting("tlscert", _text, "server certificate, PEM", "--tlscert FILE"),
    Setting("tlskey", _text, "its private key, PEM", "--tlskey FILE"),
    Setting("tlscacert", _text, "CA of client certificates, PEM", "--tlscacert FILE"),
    Setting("tlsverify", _switch, "require client certificates", "--tlsverify"),
    Setting("tlsmap", _switch, "identify users by the names in their client certificates"),
    Setting("tls_handshake_first", _switch, "start TLS before INFO is sent"),
    Setting("insecure", _switch, "allow an address that other machines can reach without authentication",
        "--insecure"),
    Setting("ports_file_dir", _text, "write the ports in use to <dir>/headrace_<pid>.ports",
        "--ports_file_dir DIR"),
    Setting("pid_file", _text, "write the process id to this file while serving", "-P --pid FILE"),
    Setting("console", _address, "the web console, on this port of this machine, or at HOST:PORT",
        "--console PORT"),
    Setting("log_file", _text, "log to a file instead of stderr", "-l --log FILE"),
    Setting("log_format", _log_format, "log lines as text, in nats-server's form (the default), or as json",
        "--log_format --log-format FORMAT"),
    Setting("logtime", _switch, "show the time in log lines (true)", "-T --logtime"),
    Setting("logtime_utc", _switch, "show that time in UTC", "--logtime_utc"),
    Setting("debug", _switch, "log connections", "-D --debug"),
    Setting("trace", _switch, "log as much detail as possible", "-V --trace"),
    Setting("max_traced_msg_len", _whole_number, "bytes of a message that the trace shows; 0: all (4096)",
        "--max_traced_msg_len BYTES"),
    Setting("no_header_support", _switch, "disable message headers"),
    Setting("max_payload", _whole_number, "largest message in bytes"),
    Setting("max_connections", _whole_number, "maximum number of connections"),
    Setting("max_pending", _whole_number, "unsent bytes at which a slow consumer is disconnected"),
    Setting("ping_interval", _seconds, "seconds of silence before a client is pinged"),
    Setting("auth_timeout", _seconds, "seconds a client has to authenticate"),
    Setting("tls_timeout", _seconds, "seconds a TLS handshake may take"),
    Setting("max_subscriptions", _whole_number, "maximum number of subscriptions per connection"),
    Setting("max_sub_tokens", _whole_number, "maximum number of tokens in a subscription"),
    Setting("max_control_line", _whole_number, "longest line of the protocol in bytes"),
    Setting("max_memory_store", _whole_number, "maximum bytes of all memory streams together"),
    Setting("max_file_store", _whole_number, "maximum bytes of all file streams together"),
    Setting("jetstream_limits", _asset_limits, "limits of streams, consumers and batches"),
    Setting("payload_cache", _whole_number, "bytes of file-stream messages cached in memory"),
    Setting("scrub", _whole_number, "bytes per second read to find disk damage (0: none)"),
    Setting("pin_handover", _handover,
        "when the next client of a priority group is pinned: drain (after the previous one has finished its "
        "messages, the default) or immediate (as nats-server)", "--pin_handover MODE"),
    Setting("ping_max", _whole_number, "unanswered pings after which a client is disconnected"),
    Setting("lame_duck_duration", _seconds, "seconds clients have to reconnect elsewhere after SIGUSR2 (2)"),
)
# fmt: on


class FileSettings(msgspec.Struct):
    """Settings by their key in ``config.SETTINGS``, and warnings for the operator.

    ``assumed`` has a warning by the key of a setting that the file leaves open and a flag may set.
    """

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    assumed: dict[str, str] = msgspec.field(default_factory=dict)

    def put(self, key: str, value: object) -> None:
        """Set it, unless the file does not say."""
        if value is not None:
            self.values[key] = value

    def warn_of(self, name: str, value: ConfigValue, what: str = "not supported, ignored") -> None:
        """Tell the operator about a setting, and where it stands."""
        self.warnings.append(f"{value.place}: {name}: {what}")


def read_file(path: Path, environ: Mapping[str, str]) -> FileSettings:
    """The settings in a file, in TOML or in nats-server's format.

    A name that ends in ``.toml`` or ``.conf`` determines the format; any other file is TOML if it parses as
    TOML. Raises ConfigurationError that names the file, the place or key, and what is accepted.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot read it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not a text in UTF-8: {error}") from error
    if path.suffix != ".conf":
        import tomllib  # imported only for a file of this format

        try:
            return FileSettings(settings_of(parse_toml(text), path, text))
        except DocumentError as error:
            raise ConfigurationError(f"{path}: {error}") from error
        except tomllib.TOMLDecodeError as error:
            if path.suffix == ".toml":
                raise ConfigurationError(f"{path}: not a TOML file: {error}") from error
    from .nats import read_nats_file  # with the parser of that format, which few starts need

    return read_nats_file(path, text, environ)


def settings_of(document: Mapping[str, Any], path: Path, text: str = "") -> dict[str, Any]:
    """The checked values of a TOML document; ``text`` is its source, for the lines of errors.

    Raises ConfigurationError.
    """
    settings = {setting.key: setting for setting in SETTINGS}
    values: dict[str, Any] = {}
    for key, value in document.items():
        setting = settings.get(key)
        if setting is None:
            from ...broker.server.config.fields import nearest

            meant = nearest(key, settings) or f"accepted are {', '.join(settings)}"
            raise ConfigurationError(f"{path}{_line_of(key, text)}: no setting {key!r}; {meant}")
        try:
            values[key] = _checked(setting, value, key)
        except ConfigurationError as error:
            line = _line_of(_named_in(str(error)) or key, text) or _line_of(key, text)
            raise ConfigurationError(f"{path}{line}: {error}") from None
    return values


def _named_in(error: str) -> str:
    """The last name of ``accounts.APP: jetstreem: not supported``: the setting within a table."""
    found = re.match(r"[\w.\[\]-]+: ([\w-]+):", error)
    return found[1] if found is not None else ""


def _line_of(key: str, text: str) -> str:
    """``:12`` if the line on which a TOML text sets ``key`` can be told, otherwise nothing."""
    name = re.escape(key)
    expression = rf"""^\s*(?:\[+\s*)?(?P<quote>["']?){name}(?P=quote)\s*(?:[=.\]])"""
    found = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if re.match(expression, line) is not None
    ]
    return f":{found[0]}" if found else ""


def _checked(setting: Setting, value: Any, name: str) -> Any:
    """``value`` as the setting has it. Raises ConfigurationError that calls the setting ``name``."""
    try:
        return setting.check(value)
    except ConfigurationError:
        raise
    except ValueError as error:
        shown = "" if setting.key in ("pass", "auth") else f" {value!r}"
        raise ConfigurationError(f"{name}:{shown} is not accepted; it must be {error}") from None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag per setting that has any; flags that are not given stay None."""
    for setting in SETTINGS:
        if not setting.flags:
            continue
        options: dict[str, Any] = {"dest": setting.key, "default": None, "help": setting.help}
        if setting.check is _switch:
            options["action"] = "store_true"
            parser.add_argument(  # the form into which `spell` turns --flag=false
                f"--off-{setting.key}",
                dest=setting.key,
                action="store_false",
                default=None,
                help=argparse.SUPPRESS,
            )
        else:
            options["metavar"] = setting.usage.split()[-1]
            if setting.check is _whole_number:
                options["type"] = int
        parser.add_argument(*setting.flags, **options)


def given_flags(args: argparse.Namespace) -> dict[str, Any]:
    """The settings given as flags. Raises ConfigurationError."""
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        value = getattr(args, setting.key, None)
        if value is not None:
            values[setting.key] = _checked(setting, value, setting.flags[-1])
    return values


_OPTION_NAMES: Final = {
    "addr": "host", "pass": "password", "auth": "token", "http_host": "monitor_host",
    "http_port": "monitor_port", "max_connections": "connections_max", "max_pending": "outbound_bytes_max",
    "max_sub_tokens": "subscription_tokens_max", "max_subscriptions": "subscriptions_max",
    "ping_max": "pings_out_max", "max_memory_store": "memory_bytes_max", "max_file_store": "file_bytes_max",
    "payload_cache": "payload_cache_bytes", "scrub": "scrub_bytes_s",
}  # fmt: skip
"""Settings that have another name in ``BrokerOptions``."""


def broker_options(values: Mapping[str, Any]) -> BrokerOptions:
    """The broker options for these settings. Raises ConfigurationError."""
    named = {_OPTION_NAMES.get(key, key): value for key, value in values.items()}
    options = {f.name: named[f.name] for f in fields(BrokerOptions) if f.name in named}
    options["tls"] = _tls_options(values)
    options["headers"] = not values.get("no_header_support", False)
    return BrokerOptions(**{"port": PORT_DEFAULT, **options})


def _tls_options(values: Mapping[str, Any]) -> TlsOptions | None:
    verify = values.get("tlsverify", False)
    maps = values.get("tlsmap", False)
    if not (values.get("tls", False) or verify or maps or "tlscert" in values):
        return None
    missing = [name for name in ("tlscert", "tlskey") if name not in values]
    if missing:
        raise ConfigurationError(f"tls: {' and '.join(missing)} missing; TLS needs both files")
    return TlsOptions(
        certificate_file=values["tlscert"],
        key_file=values["tlskey"],
        ca_file=values.get("tlscacert"),
        verify_clients=verify,
        map_clients=values.get("tlsmap", False),
        handshake_first=values.get("tls_handshake_first", False),
        timeout=values.get("tls_timeout", limits.TLS_TIMEOUT_S),
    )
