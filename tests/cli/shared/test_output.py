from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest
import yaml

from headrace.cli.shared.output import (
    Form,
    Output,
    Sheet,
    Table,
    fitting,
    json_text,
    printable,
    yaml_text,
)


def table() -> Table:
    table = Table(("NAME", "COUNT"), right=frozenset(("COUNT",)), empty="none; create one")
    table.add("orders", 12)
    table.add("a longer name", 3)
    return table


def test_a_table_off_the_terminal_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show({}, table())
    assert capsys.readouterr().out.splitlines() == [
        "NAME           COUNT",
        "orders            12",
        "a longer name      3",
    ]


def test_an_empty_table_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show({}, Table(("NAME",), empty="none; create one"))
    assert capsys.readouterr().out == "none; create one\n"


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_document(
    form: Form, load: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(load)
    document = {"name": "ä", "rows": [1, 2.5, None, True], "more": {"a": "b"}}
    Output(form).show(document, table())
    assert load(capsys.readouterr().out) == document


def test_a_sheet_leaves_out_what_is_not_set(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = Sheet("Stream A")
    sheet.section("State", [("Messages", 0), ("Description", ""), ("Mirror", None)])
    sheet.section("Cluster", [("Name", "")])
    Output().show({}, sheet)
    assert capsys.readouterr().out == "Stream A\n\nState:\n  Messages: 0\n"


def test_what_would_command_a_terminal_is_escaped() -> None:
    assert printable("a\x1b[2Jb\x07") == "a\\x1b[2Jb\\x07"
    assert printable("zwei\nZeilen ä") == "zwei\nZeilen ä"


@pytest.mark.parametrize("form", ["text", "json", "yaml"])
def test_no_form_writes_what_would_command_a_terminal(
    form: Form, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "ä \x9b31m \x1b[2J \x7f \u202e \U000e0001 \ud800"
    output = Output(form)
    output.show({"text": hostile}, hostile, Sheet(hostile), Table(("A",), empty=hostile))
    output.line({"text": hostile}, hostile)
    output.note(hostile)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert text.replace("\n", "").isprintable(), ascii(text)
    assert "31m" in said.out
    assert json.loads(json_text({"text": hostile})) == {"text": hostile}
    assert yaml.safe_load(yaml_text({"text": hostile})) == {"text": hostile}


DRAW = """
from headrace.cli.shared.output import Output, Table
table = Table(("NAME", "TEXT"))
table.add("orders", "word " * 40)
Output().show({}, table)
"""


@pytest.mark.parametrize("colour", [True, False])
def test_on_a_terminal_a_table_is_drawn_to_fit_it(colour: bool) -> None:
    ours, theirs = pty.openpty()
    environ = {"COLUMNS": "60", "TERM": "xterm", "PATH": os.environ["PATH"]}
    environ |= {} if colour else {"NO_COLOR": "1"}
    subprocess.run([sys.executable, "-c", DRAW], stdout=theirs, env=environ, check=True)
    os.close(theirs)
    drawn = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the end of a terminal
            break
        drawn += part
    os.close(ours)
    text = drawn.decode()
    assert ("\x1b[1;36m" in text) is colour
    if not colour:
        lines = (
            text.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()
        )
        assert "orders" in text
        assert 50 < max(map(len, lines)) <= 60
        assert "…" in text
        assert len([line for line in lines if "orders" in line or "word" in line]) == 1


MANY = """
from headrace.cli.shared.output import Output, Table
headings = "CONSUMER", "KIND", "ACK", "ACK WAIT", "WAITING", "SHARE", "UNACKED", "AGAIN", "PULLS", "STATE"
table = Table(headings, title="of ORDERS")
table.add("billing", "pull", "explicit", "30s", "1,200", "100%", "0", "0", "512", "")
Output().show({}, table)
"""


def test_columns_that_would_be_too_narrow_to_be_read_become_a_paragraph_for_each_row() -> None:
    assert "CONSUMER" in drawn_on(120, MANY)
    text = drawn_on(80, MANY)
    assert text.splitlines() == [
        "of ORDERS",
        "billing",
        "  KIND pull  ACK explicit  ACK WAIT 30s  WAITING 1,200  SHARE 100%  UNACKED 0 ",
        "  AGAIN 0  PULLS 512 ",
    ]


def drawn_on(columns: int, program: str) -> str:
    """What a program shows on a terminal of so many columns, without colours."""
    ours, theirs = pty.openpty()
    environ = {"COLUMNS": str(columns), "TERM": "xterm", "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", program], stdout=theirs, env=environ, check=True)
    os.close(theirs)
    text = os.read(ours, 65_536).decode()
    os.close(ours)
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_the_widest_column_is_cut_first() -> None:
    rows = [("NAME", "TEXT"), ("orders", "x" * 90), ("n" * 20, "y")]
    assert fitting(rows, 200) == [20, 90]
    assert fitting(rows, 60) == [20, 34]
    assert fitting(rows, 10) == [8, 8]
