from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.demo.flights import ORDER, UNKNOWN_AIRCRAFT, find_data, load_flights, messages
from headrace.subjects import is_valid_subject


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights(find_data())


def test_all_flights_are_there_in_the_order_they_were_scheduled(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    keys = list(zip(*(flights[name].to_pylist() for name in ORDER), strict=True))
    assert keys == sorted(keys)


def test_every_flight_has_a_valid_subject_and_a_document_without_holes(flights: pa.Table) -> None:
    for subject, payload in messages(flights, 0, 2_000):
        assert is_valid_subject(subject.encode())
        word, origin, aircraft = subject.split(".")
        flight = json.loads(payload)
        assert word == "flights"
        assert origin == flight["origin"]
        assert aircraft == flight.get("tailnum", UNKNOWN_AIRCRAFT)
        assert None not in flight.values()
        assert flight["time_hour"].startswith("2013-01-0")


def test_any_piece_of_the_messages_is_the_same_piece(flights: pa.Table) -> None:
    all_of_them = list(messages(flights, 0, 300))
    assert list(messages(flights, 100, 205)) == all_of_them[100:205]
    assert list(messages(flights, 300, 300)) == []
