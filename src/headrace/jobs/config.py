"""The settings of ``headrace jobs serve``: one struct for the file, the flags and the documentation.

The file is read here, and what is wrong with it told with its line; the certificate that the settings name
is changed while the service listens. What the file defines is ``seeds``; what a running service takes of a
change is decided in ``server``.
"""

from __future__ import annotations

import re
import ssl
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from ..documents import DocumentError, parse_toml
from ..errors import ConfigurationError, InvalidSubjectError
from ..host_names import LOOPBACK_NAMES, Names, is_loopback, name_of
from ..subjects import check_pattern, is_literal
from ..toml_lines import Path as Keys
from ..toml_lines import find_line, find_lines
from . import limits
from .errors import JobsError
from .ids import check_id
from .models import Options
from .retry_policy import RetryPolicy
from .seeds import SeedChannel, SeedProducer
from .vault import Vault, read_keys

__all__ = ["Config", "Document", "TlsConfig", "keys_of", "load_config"]


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
    """Answer with no passphrase: the service has no terminal to ask at."""
    return ""


T = TypeVar("T")

_AT: Final = re.compile(r"^(.*) - at `\$([^`]*)`$", re.DOTALL)
_NAMED: Final = re.compile(r"^([\w-]+(?:\[\d+\]|\.[\w-]+)*): ")
_PART: Final = re.compile(r"\[(\d+)\]|\[\.\.\.\]|\.?([\w-]+)")


class Document:
    """A TOML file's tree, and where each key of it stands. None: no file, an empty tree.

    Raises ConfigurationError: the file cannot be read, or is no TOML.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.tree: dict[str, Any] = {}
        self._lines: dict[Keys, int] = {}
        if path is None:
            return
        try:
            text = path.read_text("utf-8")
            self.tree = parse_toml(text)
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, DocumentError) as error:
            raise ConfigurationError(f"{path}: {error}") from None
        self._lines = find_lines(text)

    def converted(self, kind: type[T], overrides: Mapping[str, Any]) -> T:
        """The tree as a struct, ``overrides`` in it. Raises ConfigurationError with the line."""
        self.check_keys(kind)
        try:
            return msgspec.convert({**self.tree, **overrides}, kind)
        except msgspec.ValidationError as error:
            found = _AT.match(str(error))
            said, where = (found[1], found[2].lstrip(".")) if found else (str(error), "")
            name = f"{where}: " if where else ""
            raise ConfigurationError(f"{self._place(where, overrides)}: {name}{said}") from None

    def check_keys(self, kind: Any, *front: str) -> None:
        """Raise ConfigurationError about a key that ``kind`` has not, at the keys ``front``."""
        tree: Any = self.tree
        for key in front:
            tree = tree.get(key, {}) if isinstance(tree, Mapping) else {}
        for keys, known in unknown_keys(tree, kind, front):
            near = get_close_matches(keys[-1], known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"accepted are {', '.join(known)}"
            where = f" in {'.'.join(keys[:-1])}" if keys[:-1] else ""
            line = find_line(self._lines, keys)
            raise ConfigurationError(
                f"{self._path}:{line}: no setting {keys[-1]!r}{where}; {meant}"
            )

    def placed(self, error: ConfigurationError, overrides: Mapping[str, Any]) -> ConfigurationError:
        """The error with file and line, if what it names stands in the file."""
        found = _NAMED.match(str(error))
        keys = _keys(found[1]) if found else ()
        if self._path is None or not keys or keys[0] in overrides or keys[0] not in self.tree:
            return error
        return ConfigurationError(f"{self._place(found[1] if found else '', overrides)}: {error}")

    def _place(self, where: str, overrides: Mapping[str, Any]) -> str:
        keys = _keys(where)
        if self._path is None or (keys and keys[0] in overrides):
            return "settings"
        line = find_line(self._lines, keys)
        return f"{self._path}:{line}" if line else str(self._path)


def _keys(where: str) -> Keys:
    """``feeds[0].batch`` as keys."""
    return tuple(number or name or "..." for number, name in _PART.findall(where))


def keys_of(kind: Any) -> list[str]:
    """The keys of a table that is read as ``kind``."""
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def unknown_keys(tree: Any, kind: Any, path: Keys = ()) -> Iterator[tuple[Keys, list[str]]]:
    """The keys of a tree that its type has not, each with those that there are."""
    if get_origin(kind) in (Union, UnionType):
        structs = [each for each in get_args(kind) if each is not type(None)]
        kind = structs[0] if len(structs) == 1 else Any
    if get_origin(kind) is dict and isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from unknown_keys(value, get_args(kind)[1], (*path, key))
    elif get_origin(kind) is list and isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from unknown_keys(value, get_args(kind)[0], (*path, str(number)))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(tree, Mapping):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for key, value in tree.items():
            if key not in types:
                yield (*path, key), list(types)
            else:
                yield from unknown_keys(value, types[key], (*path, key))


_FORBIDDEN_IN_NAMES: Final = frozenset(" \t\r\n\0.*>/\\")
_ORDERING_KEY: Final = re.compile(r"|subject(:[1-9][0-9]?)?|header:[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SERVERS_OWN: Final = ("$", "_INBOX")
"""Beginnings of the subjects of a server and of its clients: no stream's messages are there."""


def _check_text_of(url: str, field: str) -> None:
    if not url:
        raise ConfigurationError(f"{field}: the address of a broker, such as nats://127.0.0.1:4222")


def _check_pattern(text: str, field: str) -> None:
    try:
        check_pattern(text.encode())
    except (InvalidSubjectError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"{field}: {error}") from None
    if text.startswith(_SERVERS_OWN):
        raise ConfigurationError(
            f"{field}: {text!r} is the server's own; accepted: a subject of the stream's"
        )


class GatewayConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``[gateway]``: only signed requests are accepted."""

    secrets: list[str]
    """A request is accepted that is signed with one of these."""
    tolerance_seconds: int = 300
    """Largest distance of a signature's time from now."""
    exempt: tuple[str, ...] = ("/_status", "/metrics", "/health/")
    """Paths that need no signature; one that ends in / stands for all below it."""
    v2_only: bool = False
    """Refuse signatures v1, which leave method and target out."""


class FeedConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``[[feeds]]``: a channel fed from a stream.

    ``name`` is what it is called among the feeds of its channel (the stream's name, if it is not given).
    ``group`` is the durable consumer, ``batch`` how many messages one transaction stores. ``ordering_key``:
    ``subject``, one token of it (``subject:2``, the first is 1), or a header (``header:Customer``); empty: no
    key. While the channel has ``unfinished_max`` jobs that wait or run, the feed takes nothing.
    """

    channel: str
    """The channel whose messages they become. Required."""
    stream: str
    """The stream that is read. Required."""
    name: str = ""
    """Name of the feed among those of its channel; empty: as the stream."""
    url: str = "nats://127.0.0.1:4222"
    """The broker."""
    filter: str = ">"
    """Pattern of the subjects of the stream that are fed."""
    group: str = "headrace-jobs"
    """The durable consumer."""
    batch: int = 200
    """Messages of one transaction, 1 to 5000."""
    ordering_key: str = ""
    """`subject`, one token of it (`subject:2`), a header (`header:Customer`), or nothing."""
    unfinished_max: int = 100_000
    """While the channel has so many jobs that wait or run, nothing is taken."""

    @property
    def feed_id(self) -> str:
        """Its name."""
        return self.name or self.stream

    def check(self, where: str) -> None:
        """Reject what cannot be; the text begins with ``where``."""
        _check_text_of(self.url, f"{where}.url")
        for field in ("stream", "group"):
            value = getattr(self, field)
            if not value or not _FORBIDDEN_IN_NAMES.isdisjoint(value) or not value.isprintable():
                raise ConfigurationError(
                    f"{where}.{field}: {value!r}; accepted: a name without spaces, dots, * and >"
                )
        try:
            check_id(self.channel, f"{where}.channel")
            check_id(self.feed_id, f"{where}.name")
        except JobsError as error:
            raise ConfigurationError(f"{error.field}: {error.message}") from None
        _check_pattern(self.filter, f"{where}.filter")
        if not 1 <= self.batch <= limits.FEED_BATCH_MAX:
            raise ConfigurationError(f"{where}.batch: 1 to {limits.FEED_BATCH_MAX}")
        if self.unfinished_max < 1:
            raise ConfigurationError(f"{where}.unfinished_max: 1 or more")
        if not _ORDERING_KEY.fullmatch(self.ordering_key):
            raise ConfigurationError(
                f"{where}.ordering_key: {self.ordering_key!r}; accepted: `subject`, `subject:2` (its second "
                "token), `header:NAME`, or nothing"
            )


class OutcomesConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``[outcomes]``: outcomes of jobs, published to a stream."""

    url: str = "nats://127.0.0.1:4222"
    """The broker."""
    subject: str = "jobs.outcomes"
    """Subject to which outcomes are published."""

    def check(self) -> None:
        """Reject what is no subject of a stream."""
        _check_text_of(self.url, "outcomes.url")
        _check_pattern(self.subject, "outcomes.subject")
        if not is_literal(self.subject.encode()):
            raise ConfigurationError(
                f"outcomes.subject: {self.subject!r}; accepted: a subject without wildcards"
            )


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Every setting, with its default and its unit in its name."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8080
    """Port to listen on; 0: any free one."""
    database: str = "sqlite:///headrace-jobs.db"
    """`sqlite:///path.db`, or `postgresql://…` without a password."""
    admin_token: str = ""
    """The admin token; better in HEADRACE_JOBS_ADMIN_TOKEN."""
    insecure: bool = False
    """Let other machines connect without an admin token."""
    push: bool = True
    """Whether this process calls endpoints."""
    database_threads: int = 8
    """Connections to PostgreSQL, 1 to 64."""
    max_retries: int = limits.MAX_RETRIES_DEFAULT
    """Retries of new consumers."""
    retry_delays_seconds: tuple[float, ...] | None = None
    """Delays between attempts of new consumers; default: they double."""
    rational_delay_seconds: float = limits.RATIONAL_DELAY_S_DEFAULT
    """Added to the time limit of a pull job."""
    connection_timeout_seconds: float = limits.CONNECTION_TIMEOUT_S_DEFAULT
    """Time limit of a push call or a pull job."""
    schedule_min_delay_seconds: float = limits.SCHEDULE_MIN_DELAY_S_DEFAULT
    """Shortest time by which a scheduled message has to be ahead."""
    payload_bytes_max: int = limits.PAYLOAD_BYTES_MAX_DEFAULT
    """The largest payload, 1 to 67108864."""
    token_header: str = "X-Broker-Consumer-Token"  # noqa: S105
    """The header that carries a consumer's token in a push."""
    user_agent: str = "headrace-jobs"
    """The User-Agent of pushes."""
    allow_networks: list[str] = []
    """Networks that are not public and that pushes may call, such as 127.0.0.0/8."""
    https_only: bool = False
    """Push to https URLs only."""
    allowed_hosts: list[str] = []
    """Names under which clients reach the service, beside the machine's own."""
    drain_seconds: float = 15.0
    """Time to finish what is under way when stopped."""
    keep_messages_days: float | None = None
    """Age at which finished messages are removed; default: never."""
    keep_dead_days: float | None = None
    """Age at which dead letters are removed with them; default: never."""
    keep_attempts_days: float | None = 7.0
    """Age at which attempts are removed."""
    keep_audit_days: float | None = 90.0
    """Age at which lines of the audit log are removed."""
    encryption_keys_file: str = ""
    """Keys that secrets are encrypted with, one a line."""
    encryption_keys: tuple[str, ...] = ()
    """Keys themselves, in the place of the file; better in HEADRACE_JOBS_ENCRYPTION_KEYS."""
    archive_directory: str = ""
    """Folder in which removed messages are kept as JSON lines; empty: nowhere."""
    tls: TlsConfig | None = None
    """`[tls]`: listen with TLS 1.2 and later."""
    gateway: GatewayConfig | None = None
    """`[gateway]`: only signed requests are accepted."""
    outcomes: OutcomesConfig | None = None
    """`[outcomes]`: outcomes of jobs are published to a stream."""
    feeds: list[FeedConfig] = []
    """`[[feeds]]`: channels that streams feed."""
    producers: dict[str, Any] = {}
    """`[producers.<id>]`: definitions."""
    channels: dict[str, Any] = {}
    """`[channels.<id>]`, and their consumers: definitions."""

    def check(self) -> None:
        """Reject invalid settings; the text names the setting."""
        if not 0 <= self.port <= 65535:
            raise ConfigurationError("port: 0 (any) to 65535")
        for name in (
            "rational_delay_seconds",
            "connection_timeout_seconds",
            "schedule_min_delay_seconds",
        ):
            if not 0 <= getattr(self, name) <= 86400:
                raise ConfigurationError(f"{name}: 0 to 86400")
        if not 0 <= self.max_retries <= limits.MAX_RETRIES_MAX:
            raise ConfigurationError(f"max_retries: 0 to {limits.MAX_RETRIES_MAX}")
        if not 1 <= self.payload_bytes_max <= 64 * 1024 * 1024:
            raise ConfigurationError("payload_bytes_max: 1 to 67108864")
        if not 1 <= self.database_threads <= 64:
            raise ConfigurationError("database_threads: 1 to 64")
        for number, feed in enumerate(self.feeds):
            feed.check(f"feeds[{number}]")
        names = Counter((feed.channel, feed.feed_id) for feed in self.feeds)
        for (channel, feed_id), count in names.items():
            if count > 1:
                raise ConfigurationError(
                    f"feeds: {count} of the channel {channel} are called {feed_id}: give each a `name`"
                )
        groups = Counter((feed.url, feed.stream, feed.group) for feed in self.feeds)
        for (_, stream, group), count in groups.items():
            if count > 1:
                raise ConfigurationError(
                    f"feeds: {count} of the stream {stream} have the group {group}, and would take "
                    "messages from each other: give each a `group` of its own"
                )
        if self.outcomes is not None:
            self.outcomes.check()
        if self.encryption_keys and self.encryption_keys_file:
            raise ConfigurationError(
                "encryption_keys_file: accepted is this, or HEADRACE_JOBS_ENCRYPTION_KEYS, but not both"
            )
        for name in self.allowed_hosts:
            if not name or name != name_of(name) or "/" in name:
                raise ConfigurationError(
                    f"allowed_hosts: {name!r}; accepted: a name without a port"
                )
        for name in ("token_header", "user_agent"):
            value = getattr(self, name)
            if not value or not value.isascii() or not value.isprintable():
                raise ConfigurationError(f"{name}: printable ASCII")
        token = self.admin_token
        if not token.isascii() or not token.isprintable() or token != token.strip():
            raise ConfigurationError("admin_token: printable ASCII, without blanks at its ends")
        if self.retry_delays_seconds is not None:
            RetryPolicy(delays_s=self.retry_delays_seconds).check()
        if not self.is_loopback() and not self.admin_token and not self.insecure:
            raise ConfigurationError(
                f"host {self.host!r} can be reached by others: set admin_token, or accept that anyone may "
                "change definitions with insecure"
            )

    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    def names(self) -> Names | None:
        """The names that a request may come under; None: any, since the admin token guards."""
        own = (*self.allowed_hosts, *LOOPBACK_NAMES, self.host)
        if self.is_loopback() and not self.admin_token:
            return Names(own)
        if not self.admin_token:
            return Names(own, local=True)
        return Names(own, local=True) if self.allowed_hosts else None

    def vault(self) -> Vault:
        """Make the vault of the database's secrets, with the keys of the file or of the environment."""
        if self.encryption_keys_file:
            return Vault(read_keys(Path(self.encryption_keys_file)))
        return Vault(self.encryption_keys)

    def options(self) -> Options:
        """The options of the service itself."""
        return Options(
            max_retries=self.max_retries,
            rational_delay_s=self.rational_delay_seconds,
            connection_timeout_s=self.connection_timeout_seconds,
            retry_delays_s=self.retry_delays_seconds,
            schedule_min_delay_s=self.schedule_min_delay_seconds,
            payload_bytes_max=self.payload_bytes_max,
            token_header=self.token_header,
            user_agent=self.user_agent,
            allow_networks=tuple(self.allow_networks),
            https_only=self.https_only,
        )


def load_config(path: Path | None, overrides: dict[str, Any]) -> Config:
    """The file's settings, overridden by ``overrides`` (the flags), checked."""
    document = Document(path)
    config = document.converted(Config, overrides)
    document.check_keys(dict[str, SeedProducer], "producers")
    document.check_keys(dict[str, SeedChannel], "channels")
    try:
        config.check()
    except ConfigurationError as error:
        raise document.placed(error, overrides) from None
    return config
