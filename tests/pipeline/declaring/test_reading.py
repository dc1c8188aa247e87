from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import NO_RESTARTS, PipelineError, RestartSettings

from ..conftest import ORDERS

Write = Callable[..., Path]


def problems(file: Path, **more: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineError) as caught:
        read(file, **more, environment={})
    return [(each.place.line, each.text) for each in caught.value.problems]


def with_view(*lines: str) -> str:
    return ORDERS + "\n".join(["[views.paid]", 'sql = "SELECT * FROM orders"', *lines, ""])


def test_a_file_becomes_a_pipeline(write: Write) -> None:
    file = write(
        with_view("[[views.paid.expect]]", 'check = "sequence > 0"').replace(
            'from = "orders"', 'from = "paid"\npartition_by = "subject"\ntrigger = "every 5s"'
        )
    )
    declared = read(file)
    assert declared.name == "orders"
    assert declared.checkpoint_path == file.parent / "checkpoint"
    assert declared.sources["orders"].format == "jetstream"
    assert declared.sources["orders"].options == {"stream": "ORDERS"}
    view = declared.views["paid"]
    assert view.inputs == ("orders",)
    assert [each.name for each in view.expectations] == ["sequence > 0"]
    sink = declared.sinks["out"]
    assert (sink.of, sink.partition_by, sink.trigger.interval_s) == ("paid", ("subject",), 5.0)


def test_everything_wrong_is_told_at_once_each_with_its_line(write: Write) -> None:
    file = write(
        """[pipeline]
name = "orders"
checkpoint = "checkpoint"
triger = "continuous"
on_failure = "panic"

[sources.orders]
streaming = "yes"
options = { stream = "ORDERS" }

[views.paid]
sql = "SELECT * FROM orders"
[[views.paid.expect]]
check = "a > 0"
otherwise = "quarantine"
to = "rejectd"

[sinks.paid]
from = "payd"
format = "parquet"
trigger = { schedule = "0 0 31 2 *" }

[sinks.rejected]
format = "parquet"

[sink.more]
"""
    )
    assert problems(file) == [
        (4, "unknown key 'triger'; did you mean 'trigger'?"),
        (5, "on_failure is 'panic'; accepted: 'stop', 'continue'"),
        (8, "streaming is 'yes'; accepted: true or false"),
        (13, "rows are to go to sink 'rejectd', which is not defined; did you mean 'rejected'?"),
        (18, "sink 'paid' is from 'payd', which is not defined; did you mean 'paid'?"),
        (21, "trigger: schedule '0 0 31 2 *' has no time that ever comes"),
        (23, "sink 'rejected' has no 'from', and no expectation sends rows to it"),
        (26, "unknown table 'sink'; did you mean 'sinks'?"),
    ]


def test_what_is_no_toml_is_told_with_its_line(write: Write) -> None:
    ((line, text),) = problems(write('[pipeline]\nname = "x"\ncheckpoint = oops\n'))
    assert (line, text) == (3, "no TOML: Invalid value (column 14)")


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (('checkpoint = "checkpoint"', ""), 2, "checkpoint is missing"),
        (('name = "orders"', ""), 2, "name = 'orders' goes on with what is there"),
        (('name = "orders"', 'name = "my orders"'), 3, "accepted: letters, digits"),
        (('format = "parquet"', ""), 9, "neither format and python"),
        (('from = "orders"', 'from = "[]"'), 9, "which is not defined"),
        (
            ("options = { stream", "streaming = false\noptions = { stream"),
            10,
            "no streaming source",
        ),
        (
            ('checkpoint = "checkpoint"', 'checkpoint = "s3a://x"\nfast_local_checkpoint = true'),
            5,
            "URL",
        ),
    ],
)
def test_what_does_not_go_together_is_told(
    write: Write, change: tuple[str, str], line: int, said: str
) -> None:
    found = problems(write(ORDERS.replace(*change)))
    assert [said in text for _, text in found] == [True], found
    assert found[0][0] == line


def test_views_that_use_each_other_in_a_circle_are_told(write: Write) -> None:
    text = ORDERS + (
        '[views.a]\nsql = "SELECT * FROM b, orders"\n[views.b]\nsql = "SELECT 1 FROM a -- orders"\n'
    )
    ((line, said),) = problems(write(text))
    assert line == 13
    assert "a → b → a" in said


def test_sinks_that_wait_for_each_other_are_told(write: Write) -> None:
    text = ORDERS.replace("[sinks.out]", '[sinks.out]\nafter = "other"')
    more = '[sinks.other]\nfrom = "orders"\nformat = "noop"\nafter = ["out", "outt"]\n'
    assert problems(write(text + more)) == [
        (9, "sinks 'out' and 'other' wait for each other"),
        (14, "sinks 'other' and 'out' wait for each other"),
        (14, "sink 'other' is after 'outt', which is not defined; did you mean 'out'?"),
    ]


def test_names_in_texts_and_comments_of_sql_are_no_inputs(write: Write) -> None:
    sql = """SELECT 'other', `orders`.* FROM Orders /* other */ -- other"""
    text = ORDERS + f'[sources.other]\nformat = "rate"\n[views.paid]\nsql = "{sql}"\n'
    assert read(write(text)).views["paid"].inputs == ("orders",)


def test_a_profile_overrides_and_has_lines_of_its_own(write: Write) -> None:
    text = ORDERS + (
        '[profiles.prod.pipeline]\ncheckpoint = "s3a://bucket/x"\n'
        '[profiles.prod.sources.orders.options]\nservers = "nats://prod:4222"\n'
        '[profiles.bad.sinks.out]\nfrom = "nothing"\n'
    )
    file = write(text)
    assert read(file).checkpoint == "checkpoint"
    prod = read(file, "prod")
    assert prod.checkpoint == "s3a://bucket/x"
    assert prod.sources["orders"].options == {"stream": "ORDERS", "servers": "nats://prod:4222"}
    assert prod.sources["orders"].lines["servers"].line == 16
    assert problems(file, profile="bad")[0][1].startswith("sink 'out' is from 'nothing'")
    assert problems(file, profile="prd") == [(0, "no profile 'prd'; did you mean 'prod'?")]


def test_variables_of_the_environment_are_filled_in(write: Write) -> None:
    text = ORDERS.replace('"ORDERS"', '"${STREAM:-ORDERS}", user = "${USER_NAME}", token = "$${X}"')
    file = write(text)
    given = read(file, environment={"USER_NAME": "ann"}).sources["orders"].options
    assert given == {"stream": "ORDERS", "user": "ann", "token": "${X}"}
    assert problems(file) == [
        (7, "the variable USER_NAME is not set; set it, or give a default: ${USER_NAME:-…}")
    ]
    kept = read(write(with_view().replace("FROM orders", "FROM ${orders}")), environment={})
    assert "${orders}" in kept.views["paid"].sql, "Spark has variables of its own"


def test_functions_are_found_without_running_their_file(write: Write) -> None:
    write("raise SystemExit('it was run')\ndef paid(orders, rate=1): ...\n", "views.py")
    text = ORDERS + '[views.paid]\npython = "views.py:paid"\n[sources.rate]\nformat = "rate"\n'
    view = read(write(text)).views["paid"]
    assert view.inputs == ("orders", "rate")
    assert view.function is not None
    assert view.function.place.line == 2
    ((line, said),) = problems(write(text.replace("views.py:paid", "views.py:payd")))
    assert (line, said) == (14, "views.py has no function 'payd'; did you mean 'paid'?")
    write("def paid(:\n", "views.py")
    assert problems(write(text))[0][1].startswith("no Python: ")


def test_a_python_file_declares_the_same(write: Write) -> None:
    file = write(
        """
from headrace.pipeline import Pipeline

flow = Pipeline("orders", checkpoint="checkpoint", profiles={"prod": {"spark": {"master": "yarn"}}})
flow.source("orders", options={"stream": "${STREAM:-ORDERS}"})


@flow.view(expect=[{"check": "a > 0", "otherwise": "fail"}])
def paid(orders):
    return orders


flow.sql("few", "SELECT * FROM paid LIMIT 5")
flow.sink("out", "few", format="console", options={"truncate": False})
""",
        "orders.py",
    )
    declared = read(file, "prod")
    assert declared.views["few"].inputs == ("paid",)
    assert declared.views["paid"].function is not None
    assert declared.views["paid"].function.load()("rows") == "rows"
    assert declared.sinks["out"].options == {"truncate": "false"}
    assert declared.sinks["out"].place.line == 14
    assert declared.master == "yarn"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\n\n1 / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("x = (\n", 1, "no Python: '(' was never closed"),
        (
            "from headrace.pipeline import Pipeline\nflow = Pipeline(checkpoint='c')\n",
            2,
            "TypeError: Pipeline.__init__() missing 1 required positional argument: 'name'",
        ),
        ("x = 1\n", 0, "a pipeline's file makes one Pipeline; this one makes none"),
        (
            (
                "from headrace.pipeline import Pipeline\nflow = Pipeline('p', checkpoint='c')\n"
                "flow.sink('out', 'ordrs',\n  format='console')\n"
            ),
            3,
            "sink 'out' is from 'ordrs', which is not defined",
        ),
    ],
)
def test_what_is_wrong_with_a_python_file_has_its_line(
    write: Write, text: str, line: int, said: str
) -> None:
    assert problems(write(text, f"p{abs(hash(text))}.py")) == [(line, said)]


def test_other_files_are_refused(write: Write, tmp_path: Path) -> None:
    assert problems(write("", "orders.yaml")) == [(0, "a pipeline is a .toml or a .py file")]
    assert problems(tmp_path / "none.toml") == [(0, "cannot be read: No such file or directory")]


@pytest.mark.parametrize(
    ("signature", "is_good"),
    [
        ("rows", False),
        ("rows, number", True),
        ("rows, number, run='', *, table='t'", True),
        ("rows, *more", True),
        ("rows, number, run, more", False),
    ],
)
@pytest.mark.parametrize("is_python", [True, False])
def test_a_function_of_a_sink_takes_rows_number_and_run(
    write: Write, signature: str, is_good: bool, is_python: bool
) -> None:
    function = f"def add({signature}):\n    pass\n"
    if is_python:
        text = (
            f"from headrace.pipeline import Pipeline\n{function}"
            "flow = Pipeline('p', checkpoint='c')\nflow.source('orders')\n"
            "flow.sink('out', 'orders', python=add)\n"
        )
        file = write(text, f"p{abs(hash(text))}.py")
    else:
        write(function, "sinks.py")
        file = write(ORDERS.replace('format = "parquet"', 'python = "sinks.py:add"'))
    if is_good:
        assert read(file).sinks["out"].function is not None
        return
    ((_, said),) = problems(file)
    assert "a sink's function takes the rows of a batch, its number and" in said


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("restart = true", "accepted: { attempts = 5, backoff = '1s', within = '10m' } or false"),
        ("restart = { attempt = 3 }", "it has no 'attempt'; did you mean 'attempts'?"),
        ("restart = { attempts = -1 }", "attempts is -1; accepted: a whole number, 0 for never"),
        ("restart = { backoff = 'soon' }", "'soon' is not a duration"),
        (
            "wait_for_server = 5",
            "wait_for_server is 5; accepted: a duration such as '10m', or 'for",
        ),
    ],
)
def test_restarts_and_waits_that_are_none_are_told(write: Write, key: str, said: str) -> None:
    ((line, text),) = problems(write(ORDERS.replace("[pipeline]", f"[pipeline]\n{key}")))
    assert line == 3
    assert said in text


def test_restarts_waits_and_quarantine_are_read(write: Write) -> None:
    keys = "restart = { attempts = 3, within = '1h' }\nwait_for_server = 'forever'"
    declared = read(write(ORDERS.replace("[pipeline]", f"[pipeline]\n{keys}")))
    assert declared.restart == RestartSettings(3, 1.0, 3600.0)
    assert declared.wait_for_server_s == math.inf
    assert (
        read(write(ORDERS.replace("[pipeline]", "[pipeline]\nrestart = false"))).restart
        == NO_RESTARTS
    )
    view = '[views.v]\nsql = "SELECT 1"\nletters = "dead"\n'
    ((_, said),) = problems(write(ORDERS + view))
    assert "otherwise = 'quarantine' and letters = '<subject>' belong together" in said
    both = 'otherwise = "quarantine"\nletters = "dead.*"\n'
    ((_, said),) = problems(write(ORDERS + view.replace('letters = "dead"\n', both)))
    assert "letters is 'dead.*', which is no subject" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("'10m'", "watermark is '10m'; accepted: { column = 'timestamp', delay = '10m' }"),
        ("{ colum = 'time', delay = '1m' }", "it has no 'colum'; did you mean 'column'?"),
        ("{ column = 'time' }", "delay is missing: write delay = '10m'"),
        ("{ delay = '1m' }", "column is missing: write column = 'timestamp'"),
        ("{ column = '', delay = '1m' }", "column is ''; accepted: the name of a column of the"),
        ("{ column = 'time', delay = 60 }", "delay is 60; accepted: a duration such as '15s'"),
        ("{ column = 'time', delay = 'soon' }", "delay: 'soon' is not a duration"),
    ],
)
def test_a_watermark_that_is_none_is_told_with_its_line(
    write: Write, given: str, said: str
) -> None:
    ((line, text),) = problems(write(with_view(f"watermark = {given}")))
    assert line == 15
    assert said in text


def test_a_watermark_is_read_and_has_to_be_the_only_one_of_a_stream(write: Write) -> None:
    mark = "watermark = { column = 'time', delay = '1m30s' }"
    file = write(with_view(mark))
    view = read(file).views["paid"]
    assert view.watermark is not None
    assert (view.watermark.column, view.watermark.delay) == ("time", "90000 milliseconds")
    assert view.watermark.place.line == 15
    second = f'[views.late]\nsql = "SELECT * FROM paid"\n{mark}\n'
    ((line, text),) = problems(write(with_view(mark) + second))
    assert line == 18
    assert text.startswith("view 'late' has a watermark, and stands on view 'paid', which has one")
    table = "[sources.names]\nstreaming = false\noptions = { bucket = 'names' }\n"
    still = f'[views.still]\nsql = "SELECT * FROM names"\n{mark}\n'
    ((line, text),) = problems(write(ORDERS + table + still))
    assert line == 18
    assert "stands on no streaming source: rows of a table are never late" in text


def test_what_is_rehearsed_is_read_and_has_to_be_python(write: Write) -> None:
    write("def tenfold(orders): ...\ndef mine(frame, batch): ...\n", "code.py")
    text = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"

[sources.orders]
options = { stream = "ORDERS" }

[views.tenfold]
python = "code.py:tenfold"
rehearse = true

[sinks.out]
from = "tenfold"
python = "code.py:mine"
rehearse = true
"""
    declared = read(write(text))
    assert declared.views["tenfold"].rehearse
    assert declared.sinks["out"].rehearse
    text = text.replace('python = "code.py:tenfold"', 'sql = "SELECT * FROM orders"')
    text = text.replace('python = "code.py:mine"', 'format = "noop"')
    with pytest.raises(PipelineError) as refused:
        read(write(text))
    assert [(each.place.line, each.text) for each in refused.value.problems] == [
        (11, "view 'tenfold' has no python to rehearse"),
        (16, "sink 'out' has no python to rehearse"),
    ]


def test_a_mark_that_an_editor_put_before_the_file_is_read_over(write: Write) -> None:
    file = write(ORDERS)
    before = read(file)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read(file) == before
