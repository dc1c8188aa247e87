"""``headrace server check connection|jetstream|findings``: one line and one status for monitoring systems."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, Literal, get_args

import click

from ...errors import HeadraceError
from ...findings.finding import Findings
from ...quantities import counted
from ..commands import CommandEntry
from ..shared.connection_options import connection_options, given_above, where
from ..shared.errors import Failure
from ..shared.output import Output, json_text
from ..shared.verbs import Declare, LazyGroup, Session, command_of, connected, own_values, run_loop
from .pages import MONITOR

check = LazyGroup(
    "check",
    {
        "connection": CommandEntry(
            "that the server answers, and how fast", "server.check:connection"
        ),
        "jetstream": CommandEntry("how full the account is", "server.check:jetstream"),
        "findings": CommandEntry(
            "that nothing stands still, as doctor judges it", "server.check:findings"
        ),
    },
    "Checks for monitoring systems. Status: 0 fine, 1 warning, 2 critical.",
)

_Format = Literal["nagios", "prometheus", "json", "text"]

_WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_FULL: Final = (75.0, 90.0)
"""Per cent of disk or memory from which on a check warns, and is critical."""

_BAD_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True)
class Metric:
    """A number of a check, and from where on it is bad."""

    name: str
    value: float
    unit: str
    warning: float | None
    critical: float | None


@dataclass
class Verdict:
    """What a check found.

    Attributes:
        name: of the check.
        criticals, warnings, fine: sentences.
        metrics: numbers.
    """

    name: str
    criticals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fine: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)

    @property
    def status(self) -> int:
        """0 OK, 1 warning, 2 critical: the exit status."""
        return 2 if self.criticals else 1 if self.warnings else 0

    def judge(
        self,
        name: str,
        value: float,
        warning: float | None = None,
        critical: float | None = None,
        *,
        unit: str = "",
    ) -> None:
        """Record a number; it is bad from a threshold on."""
        self.metrics.append(Metric(name, value, unit, warning, critical))
        for limit, found in ((critical, self.criticals), (warning, self.warnings)):
            if limit is not None and value >= limit:
                found.append(f"{name} {value:g}{unit} (at least {limit:g})")
                return

    def tell(self, form: _Format) -> int:
        """Print it, and return the exit status."""
        if form == "json":
            print(json_text(self.document()))
        elif form == "prometheus":
            print(self._prometheus(), end="")
        else:
            print(self._line(with_numbers=form == "nagios"))
        return self.status

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "check": self.name,
            "status": _WORDS[self.status],
            "criticals": self.criticals,
            "warnings": self.warnings,
            "ok": self.fine,
            "metrics": {each.name: each.value for each in self.metrics},
        }

    def _line(self, *, with_numbers: bool) -> str:
        said = [f"Crit: {text}" for text in self.criticals]
        said += [f"Warn: {text}" for text in self.warnings] or []
        text = "; ".join(said or self.fine)
        text = text.replace("|", "¦")  # what follows one are numbers
        line = f"{_WORDS[self.status]} {self.name}{f': {text}' if text else ''}"
        if with_numbers and self.metrics:
            line += " | " + " ".join(_perf(each) for each in self.metrics)
        return line

    def _prometheus(self) -> str:
        item = self.name.replace("\\", r"\\").replace('"', r"\"")
        lines = ["# TYPE headrace_check_status gauge"]
        lines.append(f'headrace_check_status{{check="{item}"}} {self.status}')
        for each in self.metrics:
            name = f"headrace_check_{_BAD_NAME.sub('_', each.name)}"
            lines += [f"# TYPE {name} gauge", f'{name}{{check="{item}"}} {each.value:g}']
        return "\n".join(lines) + "\n"


def _perf(each: Metric) -> str:
    limits = [f"{limit:g}" if limit is not None else "" for limit in (each.warning, each.critical)]
    tail = ";".join(limits).rstrip(";")
    return f"{each.name}={each.value:g}{each.unit}{';' + tail if tail else ''}"


def _checking(
    *declare: Declare, name: str
) -> Callable[[Callable[..., Awaitable[None]]], click.Command]:
    """Make a check of a function that is handed a session and a verdict to fill."""

    def make(function: Callable[..., Awaitable[None]]) -> click.Command:
        @click.pass_context
        @wraps(function)
        def callback(context: click.Context, /, **values: Any) -> int:
            own = own_values(values)
            form = own.pop("format")
            verdict = Verdict(name)

            async def run() -> None:
                async with connected(where(given_above(context)), Output("json")) as session:
                    await function(session, verdict, **own)

            try:
                run_loop(run())
            except HeadraceError as error:
                verdict.criticals.append(str(error))
            except Failure as failure:
                verdict.criticals.append(failure.told.text)
            return verdict.tell(form)

        form = click.Option(
            ["--format"], type=click.Choice(get_args(_Format)), default="nagios", help="(nagios)"
        )
        return command_of(function, callback, name, declare, [form, *connection_options()])

    return make


@_checking(name="connection")
async def connection(session: Session, verdict: Verdict) -> None:
    """Check that the server answers, and tell how fast."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with connected(session.where, session.output):
        verdict.judge("connect_time", loop.time() - began, unit="s")
    began = loop.time()
    await session.connection.flush()
    verdict.judge("rtt", loop.time() - began, unit="s")
    verdict.fine.append(f"connected to {session.connection.server}")


@_checking(name="jetstream")
async def jetstream(session: Session, verdict: Verdict) -> None:
    """Check how full the account is: a warning from 75 per cent of disk or memory on, critical from 90 on."""
    found = await session.js.account_info()
    for short, used, most in (
        ("store", found.storage, found.limits.max_storage),
        ("mem", found.memory, found.limits.max_memory),
        ("streams", found.streams, found.limits.max_streams),
        ("consumers", found.consumers, found.limits.max_consumers),
    ):
        verdict.judge(short, used)
        if most > 0:
            percent = round(100 * used / most, 2)
            warn, critical = _FULL if short in ("store", "mem") else (None, None)
            verdict.judge(f"{short}_pct", percent, warn, critical, unit="%")
    verdict.fine.append(
        f"{counted(found.streams, 'stream')}, {counted(found.consumers, 'consumer')}"
    )


@_checking(MONITOR, name="findings")
async def findings(session: Session, verdict: Verdict, monitor: str) -> None:
    """Check that nothing stands still, nor will.

    \b
    headrace server check findings --monitor http://127.0.0.1:8222

    What `headrace doctor` finds at the server: its problems are critical, and what is worth knowing is a
    warning.
    """
    from ..doctor import look_at

    found = Findings()
    await look_at(found, session, monitor)
    for each in found.found:
        text = f"{each.what}: {' '.join(each.text.split())}"
        if each.grade == "problem":
            verdict.criticals.append(text)
        elif each.grade == "note" and each.name:  # others are about the look itself
            verdict.warnings.append(text)
    verdict.judge("problems", len(verdict.criticals))
    verdict.judge("notes", len(verdict.warnings))
    verdict.fine.append("nothing stands still")
