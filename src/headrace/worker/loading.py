"""``app:worker``: the worker that a module has."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from ..errors import ConfigurationError
from .app import Worker

__all__ = ["load"]


def load(name: str) -> Worker:
    """The worker called ``module:attribute``; the module is looked for in the working directory, too.

    Raises ConfigurationError: there is none. What the module itself raises is the program's.
    """
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise ConfigurationError(
            f"{name!r} names no worker; accepted is module:attribute, as app:worker"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise ConfigurationError(
            f"there is no module {module_name!r} here ({here}), nor is one installed"
        ) from error
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Worker):
        workers = sorted(key for key, value in vars(module).items() if isinstance(value, Worker))
        raise ConfigurationError(
            f"{name!r} is {found!r}; accepted is a headrace.worker.Worker"
            + (f"; the module has {', '.join(workers)}" if workers else "")
        )
    if not found.sources:
        raise ConfigurationError(
            f"worker {name!r} handles nothing: it has no consumer and no group"
        )
    return found
