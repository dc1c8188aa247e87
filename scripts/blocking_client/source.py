"""What the parts of this package share."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TypeAlias

__all__ = ["ROOT", "Function", "ProblemError"]

ROOT = Path(__file__).resolve().parents[2]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class ProblemError(Exception):
    """The asyncio client has something that cannot be written; the text says what to do."""
