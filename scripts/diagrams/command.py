"""``scripts/draw-diagrams``: writes every picture, or says which differ from what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .pictures import PICTURES

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "images"


def main(arguments: list[str]) -> int:
    """Write them; with ``--check`` write nothing. Returns the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: scripts/draw-diagrams [--check]")
        return 2
    stale = []
    for name, draw in PICTURES.items():
        path, text = IMAGES / f"{name}.svg", draw().svg()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if not arguments:
            path.write_text(text)
    if stale:
        print(f"{'stale' if arguments else 'drawn'}: {', '.join(stale)}")
    return 1 if stale and arguments else 0
