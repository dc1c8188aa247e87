"""Python reads this as it starts: PySpark is loaded from where it is installed, not from its archive.

Spark puts an archive of PySpark's sources first on the path of its Python processes. Python keeps nothing
that it has compiled of an archive, so each process compiles PySpark again, which takes longer than all else
it does to start. Where the archive lies in the very package that is on the path, too, that is the same.
"""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib takes as long as this saves)


def without_archives(path: list[str]) -> list[str]:
    """The path without the archives of packages that are on it as folders, too."""
    kept = []
    for entry in path:
        library, name = os.path.split(entry)
        package = name.partition("-")[0].removesuffix(".zip")
        site = os.path.dirname(os.path.dirname(os.path.dirname(library)))  # noqa: PTH120
        is_archive = name.endswith(".zip") and package in ("pyspark", "py4j")
        is_spark = os.path.join(site, "pyspark", "python", "lib") == library  # noqa: PTH118
        there = is_archive and is_spark and site in path
        if not (there and os.path.isdir(os.path.join(site, package))):  # noqa: PTH112, PTH118
            kept.append(entry)
    return kept


def run_other(path: list[str]) -> None:
    """Run the ``sitecustomize`` that this one is in front of, if there is one."""
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec("sitecustomize", [each for each in path if each != HERE])
    if found is None or found.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(found)
    sys.modules["sitecustomize"] = module
    found.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.path[:] = without_archives(sys.path)
    run_other(sys.path)
