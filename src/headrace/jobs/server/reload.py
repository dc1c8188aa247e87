"""What a running service takes from a configuration that was changed, and what needs a restart."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from ...errors import HeadraceError
from ..config.config import Config
from ..config.seeds import Left, Seeds, apply_seeds, left_over
from ..maintenance.maintenance import Maintenance
from ..models import Options
from ..push.engine import PushEngine
from ..runtime.runtime import Runtime
from ..service import auditing
from ..service.removal.retention import Keep
from ..store import Tx

__all__ = ["RELOADED", "Reloader", "apply_definitions", "keep_of", "needs_restart"]

_LOG: Final = logging.getLogger("headrace.jobs")
_DAY_S: Final = 86_400.0
_APPLIED: Final = auditing.AuditNote(
    who="configuration", action="apply definitions", object="producers, channels and consumers"
)
RELOADED: Final = frozenset(
    {
        *("max_retries", "retry_delays_seconds", "rational_delay_seconds"),
        *("connection_timeout_seconds", "schedule_min_delay_seconds", "payload_bytes_max"),
        *("token_header", "user_agent", "allow_networks", "https_only", "admin_token"),
        *("tls", "keep_messages_days", "keep_dead_days", "keep_attempts_days", "keep_audit_days"),
        *("producers", "channels"),
    }
)


def keep_of(config: Config) -> Keep:
    """How long data is kept."""

    def seconds(days: float | None) -> float | None:
        return None if days is None else days * _DAY_S

    return Keep(
        messages_s=seconds(config.keep_messages_days),
        dead_s=seconds(config.keep_dead_days),
        attempts_s=seconds(config.keep_attempts_days),
        audit_s=seconds(config.keep_audit_days),
    )


def needs_restart(before: Config, after: Config) -> list[str]:
    """The settings that differ, and that a running service cannot change."""
    differing = [
        name
        for name in Config.__struct_fields__
        if name not in RELOADED and getattr(before, name) != getattr(after, name)
    ]
    if (before.tls is None) != (after.tls is None):
        differing.append("tls")
    if bool(before.admin_token) != bool(after.admin_token):
        differing.append(
            "admin_token"
        )  # from where requests may come hangs on whether there is one
    return sorted(differing)


async def apply_definitions(runtime: Runtime, config: Config, options: Options) -> None:
    """Apply the producers, channels and consumers of ``config``, and log those that are in it no more.

    Raises ConfigurationError, and JobsError if the database is away; then nothing was changed.
    """
    seeds = Seeds.read({"producers": config.producers, "channels": config.channels})

    def write(tx: Tx) -> tuple[bool, list[Left]]:
        is_new = apply_seeds(tx, seeds, options, tx.now_us())
        if is_new:
            auditing.note(tx, _APPLIED, tx.now_us())
        return is_new, left_over(tx)

    is_new, left = await runtime.database.write(write)
    if is_new and (seeds.producers or seeds.channels):
        _LOG.info("definitions of the configuration applied")
    for one in left:
        _LOG.warning("%s", one.sentence())


class Reloader:
    """Reads the configuration again on each :meth:`ask`, one after the other."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        read: Callable[[], Config] | None,
        maintenance: Maintenance,
        engine: PushEngine | None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._read = read
        self._maintenance = maintenance
        self._engine = engine
        self._context = context
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Read it again as soon as possible."""
        self._asked.set()

    async def run(self) -> None:
        """Serve until cancelled. A configuration with mistakes changes nothing, and is logged."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.reload()
            except HeadraceError as error:
                _LOG.error("the configuration is not in force, and nothing has changed: %s", error)
            except Exception as error:  # a mistake in a file must not end what runs
                _LOG.error("the configuration is not read again", exc_info=error)

    async def reload(self) -> None:
        """Read it, check it, apply the definitions, then the settings.

        Raises ConfigurationError, and JobsError if the database is away; then nothing was changed.
        """
        if self._read is None:
            _LOG.warning("there is no configuration to read again: the service has no --config")
            return
        config = await asyncio.to_thread(self._read)
        options = config.options()
        tls = config.tls if self._context is not None else None
        if tls is not None:
            tls.context()  # a certificate that cannot be used changes nothing
        await apply_definitions(self._runtime, config, options)
        left_alone = needs_restart(self._config, config)
        if tls is not None and self._context is not None:
            tls.load(self._context)
        self._runtime.options = options
        if "admin_token" not in left_alone:
            self._runtime.admin_token = config.admin_token or None
        self._maintenance.keep(keep_of(config))
        if self._engine is not None:
            self._engine.guard(options)
        kept = {name: getattr(self._config, name) for name in left_alone}
        self._config = _replaced(config, kept)
        _LOG.info("the configuration was read again")
        if left_alone:
            _LOG.warning("changed, but in force only after a restart: %s", ", ".join(left_alone))


def _replaced(config: Config, kept: dict[str, object]) -> Config:
    values = {name: getattr(config, name) for name in Config.__struct_fields__}
    return Config(**{**values, **kept})
