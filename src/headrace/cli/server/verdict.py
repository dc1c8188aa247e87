"""The result of a check, as monitoring systems read it: Nagios, Prometheus, JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..shared.output import json_text

Format = Literal["nagios", "prometheus", "json", "text"]

_WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
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
        below: bool = False,
    ) -> None:
        """Record a number; it is bad from a threshold on, or with ``below`` from there down."""
        self.metrics.append(Metric(name, value, unit, warning, critical))
        for limit, found in ((critical, self.criticals), (warning, self.warnings)):
            if limit is not None and (value <= limit if below else value >= limit):
                found.append(
                    f"{name} {value:g}{unit} ({'at most' if below else 'at least'} {limit:g})"
                )
                return

    def tell(self, form: Format) -> int:
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
