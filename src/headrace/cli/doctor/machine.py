"""What is wrong on this machine: Python, packages, limits, disk, contexts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..._version import __version__
from ...errors import ConfigurationError
from ...findings.finding import Findings
from ..context.files import Contexts
from ..shared.errors import Failure
from ..shared.units import bytes_text

_EXTRAS: Final = {
    "server": ("uvloop",),
    "jobs": ("starlette", "uvicorn", "httptools", "httpx2"),
    "spark": ("pyspark", "pyarrow"),
    "websocket": ("websockets",),
    "nkeys": ("cryptography",),
    "bcrypt": ("bcrypt",),
}
"""What the parts of Headrace need beyond the core."""

_FILES_WANTED: Final = 4096
_DISK_LEAST: Final = 1 << 30


def look_at_machine(findings: Findings, environ: Mapping[str, str]) -> None:
    """Versions, extras, limits, contexts, variables."""
    version = ".".join(map(str, sys.version_info[:3]))
    findings.ok("version", f"headrace {__version__}, Python {version}")
    missing = [
        extra
        for extra, modules in _EXTRAS.items()
        if any(importlib.util.find_spec(module) is None for module in modules)
    ]
    if missing:
        mend = f"pip install 'headrace[{','.join(missing)}]'"
        findings.note("extras", f"not installed: {', '.join(missing)}", mend)
    else:
        findings.ok("extras", "all installed")
    _look_at_limits(findings)
    _look_at_contexts(findings, environ)


def _look_at_limits(findings: Findings) -> None:
    try:
        import resource
    except ImportError:
        return  # not on Windows
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < _FILES_WANTED:
        text = f"at most {hard:,} open files, so few connections"
        findings.problem("open files", text, f"ulimit -Hn {_FILES_WANTED}    (as root)")
    else:
        shown = "unlimited" if hard == unlimited else f"{hard:,}"
        findings.ok("open files", f"up to {shown} (now {soft:,}; `serve` raises it)")


def _look_at_contexts(findings: Findings, environ: Mapping[str, str]) -> None:
    contexts = Contexts(environ)
    name = contexts.selected
    if not name:
        url = environ.get("NATS_URL")
        findings.ok(
            "context", "none is selected" + (f"; NATS_URL is {_without_login(url)}" if url else "")
        )
        return
    try:
        contexts.read(name)
    except (Failure, ConfigurationError) as error:
        text = error.told.text if isinstance(error, Failure) else str(error)
        findings.problem("context", text, "headrace context select    selects none")
        return
    findings.ok("context", f"{name} is selected")
    if url := environ.get("NATS_URL"):
        text = f"NATS_URL ({_without_login(url)}) wins over the server of context {name}"
        findings.note("context", text, "unset NATS_URL")
    path = contexts.path(name)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        findings.note("context", f"others can read {path}", f"chmod 600 {path}")


def _without_login(url: str) -> str:
    """A URL, or several, without user and password."""
    parts = []
    for each in url.split(","):
        scheme, mark, rest = each.rpartition("://")
        parts.append(f"{scheme}{mark}{rest.rpartition('@')[2]}")
    return ",".join(parts)


def look_at_store(findings: Findings, directory: Path) -> None:
    """A store's directory: there, ours, with room."""
    if not directory.is_dir():
        findings.problem("store", f"{directory} is not a directory", f"mkdir -p {directory}")
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        findings.problem("store", f"{directory} cannot be written to", f"chown $USER {directory}")
        return
    usage = shutil.disk_usage(directory)
    text = f"{bytes_text(usage.free)} of {bytes_text(usage.total)} are free at {directory}"
    if usage.free < _DISK_LEAST or usage.free < usage.total * 0.05:
        findings.problem("disk", text, "headrace stream report    shows who holds what")
    else:
        findings.ok("disk", text)
