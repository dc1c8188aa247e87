"""Figures: medians, ratios, a table on the terminal, a JSON file beside."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import ROOT

RESULTS = ROOT / "bench" / "results"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """The range of the rounds, so that a noisy run shows."""
    return f"{min(values):,.0f} … {max(values):,.0f}"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that is Markdown as well."""
    widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}\n")
    for index, row in enumerate((head, *rows)):
        cells = (str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        print("| " + " | ".join(cells) + " |")
        if index == 0:
            print("| " + " | ".join("-" * width for width in widths) + " |")


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
