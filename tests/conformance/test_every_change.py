"""``scenarios.changing`` leaves no field of a stream or a consumer out."""

from __future__ import annotations

import pytest

from conformance.scenarios.changing import CONSUMER_CHANGES, STREAM_CHANGES, Config
from headrace.api.base import Document
from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import StreamConfig


@pytest.mark.parametrize(
    ("changes", "config", "left"),
    [
        pytest.param(STREAM_CHANGES, StreamConfig, {"template_owner"}, id="stream"),
        pytest.param(CONSUMER_CHANGES, ConsumerConfig, set(), id="consumer"),
    ],
)
def test_every_field_is_changed(
    changes: dict[str, list[Config]], config: type[Document], left: set[str]
) -> None:
    fields = {*config.__struct_encode_fields__} - left
    assert fields == {*changes}
    for field, values in changes.items():
        assert all(field in value for value in values), field
