"""Figures: medians, ratios, a table on the terminal, a JSON file beside."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contenders import ROOT

RESULTS = ROOT / "bench" / "results"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """The range of the rounds, so that a noisy run shows."""
    return f"{min(values):,.0f} … {max(values):,.0f}"


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that is Markdown as well."""
    widths = [max(len(str(row[i])) for row in (names, *rows)) for i in range(len(names))]
    head(title, names, widths)
    for each in rows:
        row(each, widths)


def head(title: str, names: Sequence[str], widths: Sequence[int]) -> None:
    """Begin a table whose rows come one by one, by ``row``."""
    print(f"\n{title}\n")
    row(names, widths)
    row(["-" * width for width in widths], widths)


def row(cells: Sequence[str], widths: Sequence[int]) -> None:
    """A row of a table, seen at once."""
    padded = (str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True))
    print("| " + " | ".join(padded) + " |", flush=True)


@dataclass(frozen=True)
class Claim:
    """A figure with a target: ``ratio`` must be at least ``target``, or at most if ``is_ceiling``."""

    figure: str
    measured: str
    ratio: float
    target: float
    is_ceiling: bool = False
    unit: str = "×"

    @property
    def holds(self) -> bool:
        return self.ratio <= self.target if self.is_ceiling else self.ratio >= self.target


claims: list[Claim] = []


def claim(
    figure: str,
    measured: str,
    ratio: float,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    unit: str = "×",
) -> None:
    """Note a figure for ``summary``, with the one bound it must keep."""
    target = at_least if at_least is not None else at_most
    assert target is not None, f"{figure} has no target"
    claims.append(Claim(figure, measured, ratio, target, at_most is not None, unit))


def summary() -> None:
    """Every figure that has a target, in one table, and in a file beside."""
    if not claims:
        return
    rows = [
        [
            each.figure,
            each.measured,
            f"{'≤' if each.is_ceiling else '≥'} {each.target:g} {each.unit}",
            f"{each.ratio:.2f}{'' if each.holds else ' (missed)'}",
        ]
        for each in claims
    ]
    table("Targets", ["figure", "measured", "target", "ratio"], rows)
    write("targets", {"targets": [dict(asdict(each), holds=each.holds) for each in claims]})


def write(name: str, figures: dict[str, Any]) -> Path:
    """Keep the figures with what they were measured on."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"machine": machine(), "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **figures}
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def machine() -> dict[str, Any]:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
    }
