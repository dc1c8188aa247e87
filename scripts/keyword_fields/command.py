"""The command: writes what is not current, or says what it would write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from .read import Field, fields_of

__all__ = ["ROOT", "generated", "main"]

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "src" / "headrace"
HEAD: Final = '''"""{about}

Written by ``scripts/make-keywords`` from {sources}: change the fields there.
"""

from __future__ import annotations

{imports}
'''
ORDERED: Final = (
    "deliver_policy opt_start_seq opt_start_time filter_subject filter_subjects replay_policy headers_only "
    "inactive_threshold metadata"
)


def generated() -> dict[Path, str]:
    """The files as they ought to be."""
    return {
        PACKAGE / "api" / "keywords.py": _of_the_api(),
        PACKAGE / "broker" / "server" / "config" / "keywords.py": _of_the_broker(),
        PACKAGE / "client" / "net" / "connect_options.py": _of_the_client(),
    }


def _of_the_api() -> str:
    head = HEAD.format(
        about="Streams and consumers by keyword: the types of ``create_stream(…)`` and its like.",
        sources="``StreamConfig`` and ``ConsumerConfig``",
        imports="""\
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from ..field_docs import described
from .consumers import AckPolicy, DeliverPolicy, PriorityPolicy, ReplayPolicy
from .streams import (
    Compression, ConsumerLimits, Discard, PersistMode, Placement, Republish, Retention, StorageKind,
    StreamSource, SubjectTransformConfig,
)""",
    )
    consumer = fields_of(PACKAGE / "api" / "consumers.py", "ConsumerConfig")
    ordered = [field for field in consumer if field.name in ORDERED.split()]
    return _formatted(
        head
        + _class(
            "StreamFields",
            "The fields of a ``StreamConfig`` as keyword arguments.",
            fields_of(PACKAGE / "api" / "streams.py", "StreamConfig"),
        )
        + _class(
            "ConsumerFields", "The fields of a ``ConsumerConfig`` as keyword arguments.", consumer
        )
        + _class(
            "OrderedConsumerFields",
            "The fields of a ``ConsumerConfig`` that an ordered consumer leaves to its user.",
            ordered,
        )
    )


def _of_the_broker() -> str:
    head = HEAD.format(
        about="The settings of a broker by keyword: the types of ``Broker(…)``.",
        sources="``BrokerOptions``",
        imports="""\
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from ....field_docs import described
from ...core.auth.authentication import User
from ...core.auth.jwt_auth import TokenTrust
from ...core.options import AccountOptions, AssetLimits
from .options import TlsOptions, WebSocketOptions""",
    )
    fields = fields_of(PACKAGE / "broker" / "server" / "config" / "options.py", "BrokerOptions")
    about = "The fields of ``BrokerOptions`` as keyword arguments."
    return _formatted(head + _class("BrokerSettings", about, fields))


def _of_the_client() -> str:
    head = HEAD.format(
        about="The settings of a connection by keyword: the types of ``connect(…)``.",
        sources="``Options``",
        imports="""\
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from ...field_docs import described
from ..events import Event""",
    )
    fields = fields_of(PACKAGE / "client" / "net" / "options.py", "Options")
    about = "The keywords of ``connect``: the fields of ``Options``."
    return _formatted(head + _class("ConnectOptions", about, fields))


def _class(name: str, about: str, fields: list[Field]) -> str:
    lines = ["@described", f"class {name}(TypedDict, total=False):", f'    """{about}"""', ""]
    for field in fields:
        lines.append(f"    {field.name}: {field.type}")
        if field.description:
            lines += [f"    {field.description}", ""]
    return "\n".join(lines) + "\n\n"


def _formatted(text: str) -> str:
    """In the house style, as the formatter of the development environment has it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "keywords.py", "-"]
    command += ["--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    stale = [p for p, t in generated().items() if not p.exists() or p.read_text() != t]
    if arguments == ["--check"]:
        for path in stale:
            print(f"make-keywords: {path.relative_to(ROOT)} is stale", file=sys.stderr)
        return int(bool(stale))
    texts = generated()
    for path in stale:
        path.write_text(texts[path])
        print(f"make-keywords: wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return 0
