"""What a file says, whichever format it has; see ``config`` and ``nats``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from ...broker.server.config.syntax import ConfigValue


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
