from __future__ import annotations

import pickle
import re
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.options import StartPosition, parse_options
from headrace.spark.options.connection import CONNECTION_OPTIONS
from headrace.spark.options.decoding import DECODING_OPTIONS
from headrace.spark.options.group import GROUP_OPTIONS, OVERFLOW_OPTIONS
from headrace.spark.options.positions import POSITION_OPTIONS, SNAPSHOT_OPTIONS
from headrace.spark.options.source import LAG_OPTIONS, OPTIONS, SOURCE_OPTIONS
from headrace.spark.options.table import IN_MS, MOVED, MOVED_OF_SINK, SAME, Moved, Option
from headrace.spark.sink.options import parse_sink_options


def test_only_the_stream_is_required() -> None:
    options = parse_options({"stream": "S"})
    assert options.connection.servers == ("nats://127.0.0.1:4222",)
    assert options.starting == StartPosition("earliest")
    assert options.ending == StartPosition("latest")
    assert options.subjects == ()
    assert options.split_by == "sequence"
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_names_are_matched_in_any_case_and_the_url_has_a_short_name() -> None:
    options = parse_options({"STREAM": "S", "url": "nats://h:1, nats://i:2", "MaxTasks": "3"})
    assert options.connection.servers == ("nats://h:1", "nats://i:2")
    assert options.max_tasks == 3


def test_load_names_the_stream() -> None:
    assert parse_options({"path": "S"}).stream == "S"


def test_an_unknown_option_lists_the_accepted_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown option 'maxOffset'") as raised:
        parse_options({"stream": "S", "maxOffset": "3"})
    assert all(option.name in str(raised.value) for option in OPTIONS)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingoffset", "startingOffsets"),
        ("maxoffsetspertriger", "maxOffsetsPerTrigger"),
        ("strem", "stream"),
        ("urls", "url"),
    ],
)
def test_an_unknown_option_names_the_one_that_was_probably_meant(wrong: str, right: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{wrong!r}; did you mean {right!r}\?"):
        parse_options({"stream": "S", wrong: "3"})
    with pytest.raises(ConfigurationError, match="unknown option 'zzz'; accepted"):
        parse_options({"stream": "S", "zzz": "3"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("stream", "a.b", "a name without blanks"),
        ("durable", "a b", "a name without blanks"),
        ("subjects", "a..b", "empty token"),
        ("subjects", "a.>.b", "not at the end"),
        ("startingOffsets", "newest", "earliest, latest or a stream sequence"),
        ("endingOffsets", "earliest", "latest or a stream sequence"),
        ("startingTimestamp", "yesterday", "2013-01-01T05:00:00Z"),
        ("stream", "A,b c", "a name without blanks"),
        ("startingOffsets", '{"S": "newest"}', "earliest, latest or a stream sequence"),
        ("startingOffsets", "{S: 1}", "JSON with a position per stream"),
        ("startingOffsetsByTimestamp", '{"S": "yesterday"}', "2013-01-01T05:00:00Z"),
        ("startingOffsetsByTimestampStrategy", "fail", "error or latest"),
        ("maxBytesPerTrigger", "0", "at least 1"),
        ("lagSubject", "lag.*", "without wildcards"),
        ("metricsAddress", "here", "host:port such as 0.0.0.0:9464"),
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("maxTasks", "many", "a whole number"),
        ("failOnDataLoss", "yes", "true or false"),
        ("splitBy", "key", "sequence or partition"),
        ("onStreamReset", "newest", "fail, continue, earliest or latest"),
        ("onBadMessage", "ignore", "deadletter:<subject>"),
        ("onBadMessage", "skip:x", "deadletter:<subject>"),
        ("onBadMessage", "deadletter", "deadletter:<subject>"),
        ("onBadMessage", "deadletter:a.*", "without wildcards"),
        ("partitionBy", "token=0", "token=K"),
        ("pollTimeout", "soon", "250ms"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        parse_options({"stream": "S", name: value})
    assert f"{name!r} is {value!r}" in str(raised.value)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"splitBy": "partition"}, "needs the option 'partitions'"),
        ({"token": "t", "user": "u"}, "either 'token'"),
        ({"token": "t", "creds": "me.creds"}, "one way to log in"),
        ({"jwt": "eyJ0"}, "'jwt' needs 'nkeySeed'"),
        ({"nkeySeed": "SUSECRET"}, "option 'nkeySeed': the NKEY seed"),
        ({"jetstreamDomain": "hub", "jetstreamApiPrefix": "JS.hub"}, "either 'jetstreamDomain'"),
        ({"tlsCert": "c.pem"}, "belong together"),
        ({"servers": " , "}, "names no server"),
        (
            {"startingOffsets": '{"S": 1, "T": 2}'},
            "names stream 'T', which the query does not read",
        ),
        ({"stream": "S,T", "startingOffsets": '{"S": 1}'}, "no position for stream 'T'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is more than 'maxOffsetsPer"),
        ({"minPartitions": "9", "maxTasks": "8"}, "is more than 'maxTasks'"),
        ({"url": "nats://a", "servers": "nats://b"}, "given twice"),
    ],
)
def test_options_that_contradict_each_other_are_refused(extra: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as raised:
        parse_options({"stream": "S", **extra})
    assert "SECRET" not in str(raised.value)


def test_a_missing_stream_says_how_to_name_it() -> None:
    with pytest.raises(ConfigurationError, match=r'\.option\("stream", "NAME"\)'):
        parse_options({})


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigurationError, match="a stream has no end"):
        parse_options({"stream": "S", "endingOffsets": "7"}, streaming=True)
    assert (
        parse_options({"stream": "S", "endingOffsets": "7"}, streaming=False).ending.sequence == 7
    )


def test_streaming_from_latest_needs_a_durable_to_remember_the_place() -> None:
    with pytest.raises(ConfigurationError, match="'durable'"):
        parse_options({"stream": "S", "startingOffsets": "latest"}, streaming=True)
    parse_options({"stream": "S", "startingOffsets": "latest", "durable": "d"}, streaming=True)
    parse_options({"stream": "S", "startingOffsets": "latest"}, streaming=False)


def test_a_timestamp_is_milliseconds_or_a_date_and_goes_before_offsets() -> None:
    by_number = parse_options(
        {"stream": "S", "startingTimestamp": "1357016400500", "startingOffsets": "latest"}
    )
    by_text = parse_options({"stream": "S", "startingTimestamp": "2013-01-01T05:00:00.5Z"})
    assert by_number.starting == by_text.starting
    assert by_text.starting == StartPosition("time", time="2013-01-01T05:00:00.5Z")


def test_positions_are_chosen_as_by_kafka_for_each_stream() -> None:
    offsets = {"stream": "S,T", "startingOffsets": '{"S": -2, "T": 7}', "endingOffsets": "9"}
    by_offset = parse_options(offsets)
    assert [each.starting for each in by_offset.ranges] == [
        StartPosition("earliest"),
        StartPosition("sequence", 7),
    ]
    assert [each.ending.sequence for each in by_offset.ranges] == [9, 9]
    assert by_offset.of("T").starting.sequence == 7
    times = {"startingOffsetsByTimestamp": '{"S": 1357016400500, "T": "2014-01-01T00:00:00Z"}'}
    by_time = parse_options({**offsets, **times})
    assert [each.starting.time for each in by_time.ranges] == [
        "2013-01-01T05:00:00.5Z",
        "2014-01-01T00:00:00Z",
    ]
    one_time = parse_options({**offsets, **times, "startingTimestamp": "2015-01-01T00:00:00Z"})
    assert {each.starting.time for each in one_time.ranges} == {"2015-01-01T00:00:00Z"}
    assert {each.ending.sequence for each in one_time.ranges} == {9}


def test_a_stream_that_begins_at_latest_needs_a_durable_also_among_others() -> None:
    given = {"stream": "S,T", "startingOffsets": '{"S": 1, "T": -1}'}
    with pytest.raises(ConfigurationError, match="'durable'"):
        parse_options(given, streaming=True)


@pytest.mark.parametrize(
    ("given", "streaming", "rule"),
    [
        ({}, True, "fail"),
        ({"failOnDataLoss": "false"}, True, "continue"),
        ({"failOnDataLoss": "false", "onStreamReset": "fail"}, True, "fail"),
        ({"onStreamReset": "Latest"}, True, "latest"),
        ({"onStreamReset": "latest"}, False, "fail"),
    ],
)
def test_a_stream_made_again_fails_the_query_unless_told_otherwise(
    given: dict[str, str], streaming: bool, rule: str
) -> None:
    assert parse_options({"stream": "S", **given}, streaming=streaming).on_stream_reset == rule


def test_tasks_follow_the_partitions_unless_told_otherwise() -> None:
    by_partition = {"stream": "S", "splitBy": "partition", "partitions": "8"}
    assert parse_options(by_partition).max_tasks == 8
    assert parse_options({**by_partition, "maxTasks": "2"}).max_tasks == 2


@pytest.mark.parametrize(
    ("text", "token", "hashed"),
    [("token", 1, ()), ("token=3", 3, ()), ("hash", 0, ()), ("hash=2,3", 0, (2, 3))],
)
def test_the_partition_comes_from_a_token_or_a_hash(
    text: str, token: int, hashed: tuple[int, ...]
) -> None:
    rule = parse_options({"stream": "S", "partitionBy": text}).partition_rule
    assert (rule.token, rule.hashed) == (token, hashed)


def test_the_subject_of_everything_is_no_filter() -> None:
    assert parse_options({"stream": "S", "subjects": "a.*, >"}).subjects == ()
    assert parse_options({"stream": "S", "subject": "a.*,b"}).subjects == ("a.*", "b")


def test_secrets_are_not_shown_and_options_travel_to_workers() -> None:
    options = parse_options(
        {"stream": "S", "servers": "nats://me:geheim@h:1", "user": "u", "password": "hush"}
    )
    assert "geheim" not in repr(options)
    assert "hush" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_has_a_sentence_of_documentation() -> None:
    assert all(option.doc.endswith(".") for option in OPTIONS)
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("source", SOURCE_OPTIONS),
        ("position", POSITION_OPTIONS),
        ("lag", LAG_OPTIONS),
        ("snapshot", SNAPSHOT_OPTIONS),
        ("decoding", DECODING_OPTIONS),
        ("group", GROUP_OPTIONS),
        ("overflow", OVERFLOW_OPTIONS),
        ("connection", CONNECTION_OPTIONS),
    ],
)
def test_the_documentation_lists_every_option_as_it_is(
    name: str, table: tuple[Option, ...]
) -> None:
    page = pages()
    _, _, after = page.partition(f"<!-- options: {name} (checked by a test) -->\n")
    shown = after.partition("\n\n")[0].splitlines()[2:]
    assert shown == [
        f"| `{option.name}` | {f'`{option.default}`' if option.default else ''} | {option.doc} |"
        for option in table
    ]


def pages() -> str:
    """The guide, which has some of the options where it is about them, and the reference."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    return "\n".join(
        (docs / name).read_text() for name in ("spark.md", "reference/spark-options.md")
    )


def rows_after(mark: str) -> list[str]:
    return pages().partition(f"<!-- {mark} -->\n")[2].partition("\n\n")[0].splitlines()[2:]


def shown(table: tuple[Moved, ...]) -> list[str]:
    """A row for each that are next to each other and have the same sentence."""
    dots = defaultdict(str, {".": "…"})
    return [
        f"| {', '.join(f'`{m.name + dots[m.name[-1:]]}`' for m in same)} | {instead} |"
        for instead, same in groupby(table, key=lambda moved: moved.instead)
    ]


def test_the_options_of_the_kafka_source_are_all_there_with_what_to_use() -> None:
    assert set(SAME) <= {option.name for option in OPTIONS}
    assert rows_after("options: from Kafka (checked by a test)") == [
        f"| {', '.join(f'`{name}`' for name in SAME)} | the same |",
        *(f"| `{name}` | the same as `{here}`, in milliseconds |" for name, here in IN_MS.items()),
        *shown(MOVED),
    ]
    of_sink_alone = tuple(moved for moved in MOVED_OF_SINK if moved not in MOVED)
    assert rows_after("sink options: from Kafka (checked by a test)") == shown(of_sink_alone)


@pytest.mark.parametrize("moved", MOVED, ids=lambda moved: moved.name)
def test_an_option_of_kafka_that_has_another_name_here_is_refused_with_it(moved: Moved) -> None:
    key = f"{moved.name}x" if moved.name.endswith(".") else moved.name
    for name in (key, key.lower()):
        with pytest.raises(ConfigurationError, match=re.escape(moved.instead)) as raised:
            parse_options({"stream": "S", name: "1"})
        assert str(raised.value).startswith(f"jetstream source: option '{moved.name}")
    named = set(re.findall(r"'(\w+)'", moved.instead))
    assert named <= {option.name for option in OPTIONS}


@pytest.mark.parametrize("moved", MOVED_OF_SINK, ids=lambda moved: moved.name)
def test_an_option_of_kafkas_sink_is_refused_with_what_to_use(moved: Moved) -> None:
    key = f"{moved.name}x" if moved.name.endswith(".") else moved.name
    with pytest.raises(ConfigurationError, match=re.escape(moved.instead)):
        parse_sink_options({"stream": "S", "subject": "a", key.lower(): "1"}, streaming=True)


def test_the_time_that_a_kafka_task_waits_for_rows_is_taken_over() -> None:
    assert (
        parse_options({"stream": "S", "kafkaconsumer.polltimeoutms": "1500"}).read_timeout_s == 1.5
    )
    with pytest.raises(ConfigurationError, match="'readTimeout' is given twice"):
        parse_options({"stream": "S", "kafkaConsumer.pollTimeoutMs": "5", "readTimeout": "5s"})
    with pytest.raises(ConfigurationError, match="option 'readTimeout' is '5sms'"):
        parse_options({"stream": "S", "kafkaConsumer.pollTimeoutMs": "5s"})
