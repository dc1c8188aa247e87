from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigurationError
from headrace.identity import Sameness
from headrace.spark.offsets import (
    DataLossError,
    Offset,
    StreamHead,
    check_range,
    read_offsets,
    refusal,
    reset_of,
    write_offsets,
)

EPOCH = "2026-01-02T03:04:05.000000006Z"
sequences = st.integers(min_value=0, max_value=2**53)


def head(first: int, last: int, epoch: str = EPOCH) -> StreamHead:
    return StreamHead(epoch, first, last, max(0, last - first + 1), 100 * last)


@given(sequences)
def test_an_offset_survives_spark_s_json_with_the_same_text(seq: int) -> None:
    text = json.dumps(Offset(seq, EPOCH).to_dict())
    again = Offset.from_dict(json.loads(text))
    assert again == Offset(seq, EPOCH)
    assert json.dumps(again.to_dict()) == text
    assert list(again.to_dict()) == sorted(again.to_dict())
    full = Offset(seq, EPOCH, 1_700_000_000_000_000_000, 0, 1_600_000_000_000_000_000)
    assert Offset.from_dict(json.loads(json.dumps(full.to_dict()))) == full
    assert list(full.to_dict()) == sorted(full.to_dict())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "not an offset"),
        ({"seq": 1, "epoch": EPOCH}, "version None"),
        ({"seq": 1, "epoch": EPOCH, "v": 2}, "version 2"),
        ({"seq": -1, "epoch": EPOCH, "v": 1}, "no valid sequence"),
        ({"seq": True, "epoch": EPOCH, "v": 1}, "no valid sequence"),
        ({"seq": 1, "v": 1, "epoch": 7}, "no valid stream epoch"),
        ({"seq": 1, "epoch": EPOCH, "v": 1, "begin": -1}, "no valid begin"),
        ({"seq": 1, "epoch": EPOCH, "v": 1, "since": -1}, "no valid time"),
        ({"seq": 1, "epoch": EPOCH, "v": 1, "stored": "now"}, "no valid time"),
    ],
)
def test_something_else_in_the_checkpoint_is_refused(raw: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Offset.from_dict(raw)


@pytest.mark.parametrize(
    ("offset", "same", "said"),
    [
        (Offset(5, EPOCH, stored_ns=7), Sameness.SAME, ""),
        (Offset(5, "earlier", stored_ns=7), Sameness.SAME, ""),
        (Offset(5, EPOCH, stored_ns=7), Sameness.GONE, ""),
        (Offset(5, ""), Sameness.GONE, ""),
        (Offset(5, "earlier", stored_ns=7), Sameness.GONE, "was made again (it was created at"),
        (Offset(5, "earlier", stored_ns=7), Sameness.OTHER, "not the one this query read before"),
        (Offset(5, EPOCH, stored_ns=7), Sameness.OTHER, "no message 5 stored at 1970-01-01T00:00"),
        (Offset(11, EPOCH), Sameness.OTHER, "ends at sequence 10, before 11"),
        (Offset(11, EPOCH), Sameness.OTHER, "restored from an older copy"),
    ],
)
def test_a_query_goes_on_where_the_stream_has_its_message_or_its_creation_says_so(
    offset: Offset, same: Sameness, said: str
) -> None:
    reason = reset_of(offset, head(1, 10), "S", same)
    assert said in reason
    assert bool(said) == bool(reason)
    if reason:
        leads = "onStreamReset=continue" in str(refusal(reason, offset, same))
        assert leads == (bool(offset.stored_ns) or same is Sameness.GONE)


@pytest.mark.parametrize("seq", [2**63, 2**64, 10**30])
def test_a_sequence_that_no_stream_has_is_said_to_be_one(seq: int) -> None:
    for raw in ({"seq": seq, "epoch": EPOCH, "v": 1}, {"seq": 1, "begin": seq, "v": 1}):
        with pytest.raises(
            ConfigurationError, match=f"{seq}, and no stream has one beyond"
        ) as told:
            Offset.from_dict(raw)
        assert "headrace pipeline reset" in str(told.value)


@given(st.tuples(sequences, sequences, sequences, sequences).map(sorted), st.booleans())
def test_a_range_that_is_all_there_is_read_as_planned(values: list[int], fail: bool) -> None:
    first, start, end, last = values
    first = min(first, start) + 1
    found = check_range(
        Offset(start, EPOCH), Offset(end, EPOCH), head(first, last), "S", fail_on_loss=fail
    )
    assert found == (start, end)


def test_removed_messages_fail_the_batch_and_are_counted() -> None:
    with pytest.raises(
        DataLossError, match=r"begins at sequence 8 now; up to 4 messages from 4 on"
    ):
        check_range(Offset(3, EPOCH), Offset(9, EPOCH), head(8, 9), "S", fail_on_loss=True)


def test_without_fail_on_data_loss_the_rest_is_read() -> None:
    found = check_range(Offset(3, EPOCH), Offset(9, EPOCH), head(8, 9), "S", fail_on_loss=False)
    assert found == (7, 9)


def test_a_range_wholly_removed_is_empty_without_fail_on_data_loss() -> None:
    found = check_range(Offset(3, EPOCH), Offset(5, EPOCH), head(8, 9), "S", fail_on_loss=False)
    assert found == (5, 5)


def test_a_start_that_moved_beyond_its_end_is_never_an_inverted_range() -> None:
    start, end = Offset(9, EPOCH), Offset(5, EPOCH)
    with pytest.raises(DataLossError, match="first batch"):
        check_range(start, end, head(8, 9), "S", fail_on_loss=True)
    assert check_range(start, end, head(8, 9), "S", fail_on_loss=False) == (5, 5)


def test_the_mean_size_of_an_empty_stream_is_one() -> None:
    assert StreamHead(EPOCH, 0, 0, 0, 0).mean_bytes == 1
    assert StreamHead(EPOCH, 1, 4, 4, 400).mean_bytes == 100


def test_offsets_name_their_streams_and_their_source_with_sorted_keys() -> None:
    offset = Offset(7, "2026-01-01T00:00:00Z", 5, 3, 4)
    one = write_offsets({"S": offset}, ["S"], "orders")
    assert list(one) == ["begin", "epoch", "seq", "since", "source", "stored", "stream", "v"]
    assert read_offsets(one, ["S", "T"], "orders", ["refunds"]) == {"S": offset}
    two = write_offsets({"S": offset, "T": offset}, ["S", "T"], "orders")
    assert list(two) == ["s", "source", "v"]
    assert read_offsets(two, ["T", "S"], "orders") == {"S": offset, "T": offset}
    assert read_offsets(offset.to_dict(), ["S"], "orders") == {"S": offset}, "it names nothing"


def test_a_source_may_be_renamed_but_not_take_the_place_of_another_one() -> None:
    raw = write_offsets({"S": Offset(7, "e")}, ["S"], "orders")
    assert read_offsets(raw, ["S"], "purchases", ["refunds"]) == {"S": Offset(7, "e")}
    with pytest.raises(ConfigurationError, match="its sources were put in another order") as told:
        read_offsets(raw, ["S"], "refunds", ["orders"])
    assert "onStreamReset" not in str(told.value)


@pytest.mark.parametrize("before", [["A"], ["A", "B"]])
@pytest.mark.parametrize("now", [["C"], ["C", "D"]])
def test_another_stream_is_no_reset_of_the_one_before(before: list[str], now: list[str]) -> None:
    raw = write_offsets(dict.fromkeys(before, Offset(7, "e")), before)
    with pytest.raises(ConfigurationError, match="it was given another stream, or") as told:
        read_offsets(raw, now)
    assert "onStreamReset" not in str(told.value)
    assert "headrace pipeline reset" in str(told.value)
