"""Taking settings out of a configuration by name and type, with errors that say where they stand.

``read_websocket`` takes the listener for WebSockets, the same table in both formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NoReturn

from ....errors import ConfigurationError
from ....limits import TLS_TIMEOUT_S
from ....quantities import GO_UNITS, duration_ns
from .options import TlsOptions, WebSocketOptions
from .syntax import ConfigMap, ConfigPlace, ConfigValue

_DURATION_WORDS: Final = 'a duration in quotes, as "30s", "2m" or "1h30m", or a number of seconds'


def refuse(value: ConfigValue, name: str, what: str) -> NoReturn:
    """Raise ConfigurationError about the setting ``name``. The value is not shown: it may be secret."""
    raise ConfigurationError(f"{value.place}: {name}: {what}")


def nearest(key: str, known: Iterable[str]) -> str:
    """``did you mean 'port'?``, if one of the known names is near; or ""."""
    near = get_close_matches(key, sorted(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def from_plain(content: object, name: str, file: str) -> ConfigValue:
    """What another format (TOML) says, as if it had been written here; ``name`` stands for the line."""
    place = ConfigPlace(f"{file}: {name}" if file else name)
    if isinstance(content, Mapping):
        table = ConfigMap()
        for key, inner in content.items():
            table[str(key)] = from_plain(inner, f"{name}.{key}", file)
        return ConfigValue(table, place)
    if isinstance(content, list | tuple):
        items = [from_plain(inner, f"{name}[{n}]", file) for n, inner in enumerate(content)]
        return ConfigValue(items, place)
    return ConfigValue(content, place)


class Fields:
    """The keys of one map. Names are compared without case, as nats-server does.

    Every ``take_…`` raises ConfigurationError for a value of the wrong type, and gives None if the
    key is missing. What nobody took is found by ``rest``.
    """

    def __init__(self, value: ConfigValue, name: str) -> None:
        if not isinstance(value.content, ConfigMap):
            refuse(value, name, "not accepted; it must be a map, { … }")
        self._values: dict[str, tuple[str, ConfigValue]] = {}
        self._asked: set[str] = set()
        for key, inner in value.content.items():
            earlier = self._values.get(key.lower())
            if earlier is not None:
                refuse(inner, key, f"given before as {earlier[0]!r}; capitals make no difference")
            self._values[key.lower()] = (key, inner)

    def take(self, *names: str) -> ConfigValue | None:
        """The value under one of these names of one setting."""
        self._asked.update(names)
        found = [self._values.pop(name)[1] for name in names if name in self._values]
        if len(found) > 1:
            refuse(found[1], names[0], f"given twice; {' and '.join(names)} are the same setting")
        return found[0] if found else None

    def peek(self, *names: str) -> ConfigValue | None:
        """The value under one of these names; it still has to be taken."""
        self._asked.update(names)
        return next((self._values[name][1] for name in names if name in self._values), None)

    def rest(self) -> list[tuple[str, ConfigValue]]:
        """Keys nobody took, as they are written. Keys that only serve as variables are not listed."""
        return [(key, value) for key, value in self._values.values() if not value.is_variable]

    def no_more(self, what: str, within: str = "") -> None:
        """Refuse the first key that nobody took."""
        for key, value in self.rest():
            meant = self.meant(key)
            refuse(value, within + key, f"{what}; {meant}" if meant else what)

    def meant(self, key: str, others: Iterable[str] = ()) -> str:
        """``did you mean 'port'?``, if one of the names asked for, or of ``others``, is near; or ""."""
        return nearest(key.lower(), [*self._asked, *others])

    def text(self, *names: str) -> str | None:
        value = self.take(*names)
        if value is None:
            return None
        if not isinstance(value.content, str) or not value.content:
            refuse(value, names[0], "not accepted; it must be a non-empty text (in quotes)")
        return value.content

    def switch(self, *names: str) -> bool | None:
        value = self.take(*names)
        if value is None:
            return None
        if not isinstance(value.content, bool):
            refuse(value, names[0], "not accepted; it must be true or false")
        return value.content

    def number(self, *names: str) -> int | None:
        value = self.take(*names)
        if value is None:
            return None
        if isinstance(value.content, bool) or not isinstance(value.content, int):
            refuse(value, names[0], "not accepted; it must be a whole number, as 1024 or 64MB")
        return value.content

    def amount(self, *names: str) -> int | None:
        """A whole number of at least 1: of a limit, which there always is."""
        place = self.peek(*names)
        number = self.number(*names)
        if place is not None and number is not None and number < 1:
            refuse(place, names[0], f"{number} is not accepted; it must be 1 or more")
        return number

    def seconds(self, *names: str) -> float | None:
        """A duration such as ``"1m30s"``, or a bare number of seconds."""
        value = self.take(*names)
        return None if value is None else seconds_of(value, names[0])


def seconds_of(value: ConfigValue, name: str) -> float:
    """The seconds a value says. Raises ConfigurationError."""
    content = value.content
    seconds = 0.0
    if isinstance(content, str):
        seconds = (duration_ns(content, GO_UNITS) or 0) / 1e9
    elif isinstance(content, int | float) and not isinstance(content, bool):
        if value.text[-1:].isalpha():  # bare 2m is two million, which nobody means
            refuse(value, name, f"{value.text} is a size here; accepted is {_DURATION_WORDS}")
        seconds = float(content)
    if seconds <= 0:
        refuse(value, name, f"not accepted; it must be {_DURATION_WORDS}, more than 0")
    return seconds


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
