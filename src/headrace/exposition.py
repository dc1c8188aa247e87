"""Prometheus' text format: what a page of numbers is made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """One metric: its name behind the prefix of its page, its type, its meaning."""

    name: str
    kind: str
    meaning: str


def described(name: str, kind: str, meaning: str) -> list[str]:
    """The lines that stand before a metric's samples."""
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """Labels as they stand behind a metric's name; "" for none."""
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
