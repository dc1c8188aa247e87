"""A folder on the path of Spark's Python processes: with its ``sitecustomize`` they find PySpark compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = str(Path(__file__).parent)
