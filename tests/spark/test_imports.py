"""What Spark's Python processes load with the source and the sink: each that is started pays for it."""

from __future__ import annotations

import subprocess
import sys

import peers

peers.package("pyspark")

DECODERS = ("formats", "avros", "protobufs", "jsons")
LOADED = """
import sys
import headrace.spark.source, headrace.spark.sink.writer
print(*sys.modules)
"""


def test_a_source_and_a_sink_load_no_decoder_and_no_registry_before_one_is_needed() -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loaded = set(told.stdout.split())
    unneeded = {f"headrace.spark.decoding.{name}" for name in DECODERS}
    unneeded |= {"headrace.schemas.registry", "headrace.schemas.http", "fastavro"}
    assert "headrace.spark.source" in loaded
    assert not unneeded & loaded
