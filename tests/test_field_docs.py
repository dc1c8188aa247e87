"""Every field of every configuration says what it is, in what unit, and what it is by default."""

from __future__ import annotations

import inspect
import pydoc
import re
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.api import streams
from headrace.broker import server
from headrace.broker.core.options import AccountOptions, AssetLimits, JetStreamLimits
from headrace.broker.server.config import options
from headrace.client.jetstream.pull import PriorityOptions
from headrace.field_docs import described, descriptions

CONFIGURATIONS: list[Any] = [
    headrace.BrokerOptions,
    headrace.BrokerSettings,
    headrace.ConnectOptions,
    headrace.ConsumerConfig,
    headrace.ConsumerFields,
    headrace.ExternalStream,
    headrace.KeyValueOptions,
    headrace.ObjectStoreOptions,
    headrace.Options,
    headrace.OrderedConsumerFields,
    headrace.StreamConfig,
    headrace.StreamConsumerSource,
    headrace.StreamFields,
    headrace.StreamSource,
    headrace.SubjectTransformConfig,
    streams.ConsumerLimits,
    streams.Placement,
    streams.Republish,
    server.TlsOptions,
    server.User,
    options.WebSocketOptions,
    AccountOptions,
    AssetLimits,
    JetStreamLimits,
    PriorityOptions,
]
REQUIRED = {"certificate_file", "key_file", "port", "group", "name"}
UNITS = [  # a field of such a name is measured in that
    (
        r"timeout|_wait$|_wait_max$|_age$|window$|threshold$|interval$|_ttl$|^ttl$|expires$",
        "second",
    ),
    (r"bytes|_size$|payload$|_line$|backoff$", "byte"),
]


@pytest.mark.parametrize("kind", CONFIGURATIONS, ids=lambda kind: str(kind.__name__))
def test_every_field_is_described(kind: Any) -> None:
    texts = descriptions(kind)
    names = [n for n in inspect.get_annotations(kind) if n not in ("durations", "always")]
    assert list(texts) == names
    for name, text in texts.items():
        assert len(text.split()) > 1 and text.endswith((".", "…", '"')), f"{name}: {text!r}"


@pytest.mark.parametrize("kind", CONFIGURATIONS, ids=lambda kind: str(kind.__name__))
def test_every_description_says_the_default_and_the_unit(kind: Any) -> None:
    for name, text in descriptions(kind).items():
        said = re.search(r"default|Obsolete|anywhere|to log in with|…$|…", text)
        assert said or name in REQUIRED or "the API" in text or kind.__name__ in SOURCES, name
        if name in getattr(kind, "durations", ()):
            assert "econds" in text, name
        for pattern, unit in UNITS:
            if re.search(pattern, name) and not text.startswith(("Whether", "Seconds")):
                assert unit in text.lower(), f"{name}: {text}"


SOURCES = {"ExternalStream", "StreamConsumerSource", "SubjectTransformConfig", "Republish"}


@pytest.mark.parametrize("kind", CONFIGURATIONS, ids=lambda kind: str(kind.__name__))
def test_help_shows_them(kind: Any) -> None:
    shown = " ".join(pydoc.plain(pydoc.render_doc(kind)).replace("|", " ").split())
    for name, text in descriptions(kind).items():
        assert f"{name}: " in shown
        assert " ".join(text.replace("|", " ").split()) in shown, name


def test_help_shows_types_and_defaults() -> None:
    text = headrace.Options.__doc__
    assert text is not None
    assert "    connect_timeout: float = 2.0\n        Seconds for one server" in text
    assert headrace.Options().__doc__ == text
    assert "    history: int\n" in str(headrace.KeyValueOptions.__doc__)


def test_what_has_no_source_keeps_its_docstring(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec('class Plain:\n    """Words."""\n    field: int = 1', names)
    plain = described(names["Plain"])
    assert descriptions(plain) == {}
    assert plain.__doc__ == "Words."
