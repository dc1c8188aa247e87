"""Columns of one type written as another: read back equal, or refused by the sink or the reader."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.decoding import avros, protobufs
from headrace.spark.sink.options import ValueSchema
from headrace.spark.sink.values import UnfitValue, encoder_of

from .test_types import DOUBLES, MOMENTS, PROTOBUF_TYPES, SINGLES, TEXTS, decimals, layout_for, same, signed

