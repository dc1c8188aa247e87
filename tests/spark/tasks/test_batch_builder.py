from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigurationError
from headrace.spark.columns import COLUMNS, Wanted, check_columns, own_columns
from headrace.spark.frames import Chunk
from headrace.spark.options import PartitionRule
from headrace.spark.tasks.bad_messages import BadMessage, BadMessageError
from headrace.spark.tasks.batch_builder import BatchBuilder, Selection
from headrace.transforms import partition

ALL = tuple(COLUMNS)


def chunk(subjects: list[bytes], *, headers: bytes = b"", v2: bool = False) -> Chunk:
    prefix = b"$JS.ACK._.hash.S.c.1" if v2 else b"$JS.ACK.S.c.1"
    suffix = b".x" if v2 else b""
    acks = [
        b"%b.%d.%d.%d.0%b" % (prefix, n, n, 1_700_000_000_000_000_000 + n * 1000, suffix)
        for n in range(1, len(subjects) + 1)
    ]
    payloads = [b"p%d" % n for n in range(len(subjects))]
    return Chunk(subjects, payloads, [headers] * len(subjects), acks, [], [])


@pytest.mark.parametrize("v2", [False, True])
def test_position_and_time_come_from_either_form_of_ack_subject(v2: bool) -> None:
    batch = BatchBuilder(ALL, "S").build(chunk([b"a", b"b", b"a"], v2=v2))
    assert batch.column("sequence").to_pylist() == [1, 2, 3]
    assert batch.column("timestamp").to_pylist()[0] == datetime(
        2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC
    )
    assert batch.column("subject").to_pylist() == ["a", "b", "a"]
    assert batch.column("data").to_pylist() == [b"p0", b"p1", b"p2"]
    assert batch.column("stream").to_pylist() == ["S"] * 3
    assert batch.column("partition").to_pylist() == [None] * 3


def test_the_types_are_the_ones_spark_checks_to_the_letter() -> None:
    schema = BatchBuilder((*ALL, "headers"), "S").schema
    assert schema == pa.schema(
        [
            ("subject", pa.string()),
            ("data", pa.binary()),
            ("sequence", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("stream", pa.string()),
            ("partition", pa.int32()),
            ("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
        ]
    )


def test_only_the_wanted_columns_are_made_in_the_wanted_order() -> None:
    batch = BatchBuilder(("sequence", "data"), "S").build(chunk([b"a"]))
    assert batch.schema.names == ["sequence", "data"]


def test_headers_are_a_map_of_lists_and_absent_ones_an_empty_map() -> None:
    builder = BatchBuilder(("headers",), "S")
    block = b"NATS/1.0\r\nA: 1\r\nB: \xff\r\nA: 2\r\n\r\n"
    assert builder.build(chunk([b"s"], headers=block)).column("headers").to_pylist() == [
        [("A", ["1", "2"]), ("B", ["\ufffd"])]
    ]
    assert builder.build(chunk([b"s"])).column("headers").to_pylist() == [[]]


def test_a_partition_is_the_number_in_its_token() -> None:
    builder = BatchBuilder(("partition",), "S", partitions=8, rule=PartitionRule(token=2))
    batch = builder.build(chunk([b"x.3.a", b"x.7", b"x.8", b"x.y", b"x"]))
    assert batch.column("partition").to_pylist() == [3, 7, None, None, None]


@given(st.lists(st.sampled_from([b"a.b.c", b"a.b.d", b"x.y.z"]), min_size=1, max_size=20))
def test_a_partition_is_the_server_s_hash_of_the_chosen_tokens(subjects: list[bytes]) -> None:
    builder = BatchBuilder(("partition",), "S", partitions=5, rule=PartitionRule(0, (3, 1)))
    wanted = []
    for subject in subjects:
        tokens = subject.split(b".")
        wanted.append(partition(tokens[2] + tokens[0], 5))
    assert builder.build(chunk(subjects)).column("partition").to_pylist() == wanted


def test_the_hash_of_the_whole_subject_has_its_dots() -> None:
    builder = BatchBuilder(("partition",), "S", partitions=10, rule=PartitionRule(0, ()))
    assert builder.build(chunk([b"foo.bar"])).column("partition").to_pylist() == [6]


def test_every_row_belongs_to_exactly_one_task() -> None:
    subjects = [b"%d.k%d" % (n % 4, n) for n in range(40)]
    seen: list[int] = []
    for owned in ((0, 2), (1,), (3,)):
        builder = BatchBuilder(("sequence",), "S", partitions=4, selection=Selection((), owned))
        rows = builder.build(chunk(subjects)).column("sequence").to_pylist()
        assert rows == sorted(rows)
        seen += rows
    assert sorted(seen) == list(range(1, 41))


def test_subject_patterns_select_rows() -> None:
    builder = BatchBuilder(("subject",), "S", selection=Selection(("a.*", "c")))
    batch = builder.build(chunk([b"a.b", b"a.b.c", b"c", b"d", b"a.b"]))
    assert batch.column("subject").to_pylist() == ["a.b", "c", "a.b"]


def test_a_message_outside_all_partitions_is_refused_not_lost() -> None:
    owner_of_1 = BatchBuilder(("subject",), "S", partitions=2, selection=Selection((), (1,)))
    with pytest.raises(ConfigurationError, match=r"'odd\.one' belongs to none of the 2 partitions"):
        owner_of_1.build(chunk([b"0.a", b"odd.one"]))
    narrowed = BatchBuilder(
        ("subject",), "S", partitions=2, selection=Selection(("0.*", "1.*"), (1,))
    )
    assert narrowed.build(chunk([b"1.a", b"odd.one"])).column("subject").to_pylist() == ["1.a"]


def test_a_schema_of_ones_own_may_leave_columns_out_but_not_invent_any() -> None:
    data = Wanted("data", "binary")
    assert check_columns([data], include_headers=False) == (data,)
    with pytest.raises(ConfigurationError, match=r"no column 'key'.*there are: subject string"):
        check_columns([Wanted("key", "string")], include_headers=False)
    with pytest.raises(ConfigurationError, match="includeHeaders=true"):
        check_columns([Wanted("headers", "map<string,array<string>>")], include_headers=False)
    with pytest.raises(ConfigurationError, match="has type bigint, not int"):
        check_columns([Wanted("sequence", "int")], include_headers=False)


def test_the_schema_has_headers_when_asked_for() -> None:
    assert "headers" not in own_columns(include_headers=False)
    assert own_columns(include_headers=True)["headers"] == "map<string,array<string>>"


BROKEN = b"NATS/1.0\r\nno colon here\r\n\r\n"


def poisoned() -> Chunk:
    """Messages 2 and 5 have a subject that is not text, message 4 has a broken header."""
    made = chunk([b"a", b"x.\xff", b"b", b"a", b"x.\xff"])
    made.headers[3] = BROKEN
    return made


def test_a_bad_message_fails_with_its_sequence_and_what_may_be_done() -> None:
    with pytest.raises(BadMessageError, match=r"message 2 .*not UTF-8.*onBadMessage=skip"):
        BatchBuilder(("subject",), "S").build(poisoned())
    with pytest.raises(BadMessageError, match=r"message 4 .*'no colon here'"):
        BatchBuilder(("headers",), "S").build(poisoned())


def test_bad_messages_are_handed_over_and_left_out() -> None:
    found: list[BadMessage] = []
    builder = BatchBuilder((*ALL, "headers"), "S", on_bad=found.extend)
    batch = builder.build(poisoned())
    assert batch.column("sequence").to_pylist() == [1, 3]
    assert batch.column("data").to_pylist() == [b"p0", b"p2"]
    assert [(bad.sequence, bad.payload) for bad in found] == [(2, b"p1"), (5, b"p4"), (4, b"p3")]
    assert found[0].subject == b"x.\xff"
    assert found[2].headers == BROKEN


def test_a_message_is_only_bad_for_who_reads_what_is_wrong_with_it() -> None:
    assert BatchBuilder(("sequence", "data"), "S").build(poisoned()).num_rows == 5
    chosen = BatchBuilder((*ALL, "headers"), "S", selection=Selection(("b",)))
    assert chosen.build(poisoned()).column("sequence").to_pylist() == [3]


def test_a_chunk_of_bad_messages_alone_is_an_empty_batch() -> None:
    builder = BatchBuilder(ALL, "S", on_bad=lambda messages: None)
    assert builder.build(chunk([b"\xff", b"\xfe"])).num_rows == 0


def test_a_schema_may_write_names_in_any_case_and_say_not_null() -> None:
    wanted = [Wanted("SEQUENCE", "bigint", nullable=False), Wanted("Data", "binary")]
    columns = check_columns(wanted, include_headers=False)
    batch = BatchBuilder(columns, "S").build(chunk([b"a", b"b"]))
    assert batch.schema == pa.schema(
        [pa.field("SEQUENCE", pa.int64(), False), pa.field("Data", pa.binary())]
    )
    assert batch.column("SEQUENCE").to_pylist() == [1, 2]
    with pytest.raises(ConfigurationError, match="'partition' is null for messages that have none"):
        check_columns([Wanted("Partition", "int", nullable=False)], include_headers=False)
