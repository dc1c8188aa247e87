"""What a scenario is, and where all of them stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.driver import Step

__all__ = ["Scenario", "Settings", "Table"]


@dataclass(frozen=True)
class Settings:
    """What a server is started with, beyond JetStream; each server has its own words for it."""

    user: str = ""
    password: str = ""
    token: str = ""
    auth_timeout: float = 0.0  # seconds; 0: the server's default
    max_payload: int = 0  # bytes; 0: the server's default
    pin_handover: str = ""  # of ours; nats-server knows one way only
    nats_conf: str = ""  # in nats-server's own words, for both
    limits: str = ""  # likewise, of jetstream

    @property
    def is_open(self) -> bool:
        """Whether anybody may connect."""
        return not (self.user or self.password or self.token or self.nats_conf)

    def for_nats_server(self) -> str:
        lines = [self.nats_conf] if self.nats_conf else []
        if self.max_payload:
            lines.append(f"max_payload: {self.max_payload}")
        credentials = {"user": self.user, "password": self.password, "token": self.token}
        block = [f'{key}: "{value}"' for key, value in credentials.items() if value]
        if self.auth_timeout:
            block.append(f"timeout: {self.auth_timeout}")
        if block:
            lines.append("authorization { " + ", ".join(block) + " }")
        return "\n".join(lines)

    def for_headrace(self) -> str:
        values = {"user": self.user, "pass": self.password, "auth": self.token}
        lines = [f'{key} = "{value}"' for key, value in values.items() if value]
        if self.auth_timeout:
            lines.append(f"auth_timeout = {self.auth_timeout}")
        if self.max_payload:
            lines.append(f"max_payload = {self.max_payload}")
        if self.pin_handover:
            lines.append(f'pin_handover = "{self.pin_handover}"')
        return "\n".join(lines)


@dataclass(frozen=True)
class Scenario:
    """A named sequence of steps, run against both servers."""

    name: str
    steps: Sequence[Step]
    settings: Settings = Settings()


Table = list[Scenario]
