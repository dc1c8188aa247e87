"""Settings of a console. Checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..errors import ConfigurationError
from ..host_names import is_loopback

PORT_DEFAULT: Final = 8480
PASSWORD_LENGTH_MIN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a console: where it listens, and what it may look at.

    Attributes:
        name: what the pages call the server, where they show several; "" for its own name.
        host, port: where to listen; port 0 takes a free one.
        password: what a browser has to give first; required unless ``host`` is this machine's loopback.
        monitoring: the URL of the server's monitoring port, for the page of connections; without it the
            console asks the system account, which only its users may.
        jobs: the URL of a job service, for the pages of jobs.
        jobs_token: that service's admin token.
        read_only: leave out everything that changes something.
        allowed_hosts: names under which browsers reach the console, beside those of ``host``: for a
            console behind a proxy.
        interval_s: seconds between two looks while somebody watches.

    Raises:
        ConfigurationError: a value is not accepted.
    """

    name: str = ""
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    password: str = field(default="", repr=False)
    monitoring: str = ""
    jobs: str = ""
    jobs_token: str = field(default="", repr=False)
    read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    interval_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"console: port {self.port}; accepted: 0 to 65535")
        if not 0.1 <= self.interval_s <= 3600:
            raise ConfigurationError(
                f"console: interval_s {self.interval_s}; accepted: 0.1 to 3600 seconds"
            )
        if self.password and len(self.password) < PASSWORD_LENGTH_MIN:
            raise ConfigurationError(
                f"console: the password is too short; accepted: {PASSWORD_LENGTH_MIN} or more characters"
            )
        if not self.password and not is_loopback(self.host):
            raise ConfigurationError(
                f"console: {self.host} can be reached from other machines; give a password"
                " (HEADRACE_CONSOLE_PASSWORD), or listen on 127.0.0.1"
            )
        for name in ("monitoring", "jobs"):
            url: str = getattr(self, name)
            if url and not url.startswith(("http://", "https://")):
                raise ConfigurationError(
                    f"console: {name} {url!r}; accepted: http://… or https://…"
                )
