"""Headrace: pull-based streaming for Python and Spark.

The package imports nothing heavy: names below are loaded on first use (PEP 562).
"""

from __future__ import annotations

from ._version import __version__

__all__ = ["__version__"]
