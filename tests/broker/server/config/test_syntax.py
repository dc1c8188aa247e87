"""The syntax of nats-server's configuration, against what that server reads and refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.server.config.syntax import ConfigMap, ConfigValue, parse_config
from headrace.errors import ConfigurationError


def parse(
    text: str, environ: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> ConfigMap:
    def read(name: str, including: str) -> tuple[str, str]:
        if name not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory")
        return name, (files or {})[name]

    return parse_config(text, "nats.conf", environ or {}, read)


def plain(value: object) -> object:
    if isinstance(value, ConfigValue):
        return plain(value.content)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# nothing\n// at all\n", {}),
        ("a: 1", {"a": 1}),
        ("a = 1", {"a": 1}),
        ("a 1", {"a": 1}),
        ("a:1;b=2,c 3", {"a": 1, "b": 2, "c": 3}),
        ("a\n=\n1", {"a": 1}),
        ("a { b: c }", {"a": {"b": "c"}}),
        ("a{b{c:1}}", {"a": {"b": {"c": 1}}}),
        ("a: [1, x, 'y z', [true]]", {"a": [1, "x", "y z", [True]]}),
        ("a: [\n one\n two # 2\n]", {"a": ["one", "two"]}),
        ('{"a": {"b": [1, 2]}, "c": false}', {"a": {"b": [1, 2]}, "c": False}),
        ("a: nats://h:1 // b", {"a": "nats://h:1"}),
        ("a: foo#bar", {"a": "foo#bar"}),
        ("a: 127.0.0.1:4222", {"a": "127.0.0.1:4222"}),
        ("a: -1\nb: -1.5", {"a": -1, "b": -1.5}),
        ("a: 1k\nb: 1kb\nc: 2MB\nd: 1m", {"a": 1000, "b": 1024, "c": 2 << 20, "d": 10**6}),
        ("a: 1GiB", {"a": 1 << 30}),
        ("a: 10s\nb: 1h30m", {"a": "10s", "b": "1h30m"}),
        ("a: YES\nb: off", {"a": True, "b": False}),
        ("'a b': \"x\\ty\\x41\\\\\"\nc: 'no\\t'", {"a b": "x\tyA\\", "c": "no\\t"}),
        ("a (\n one\n two\n )\nb: 1", {"a": "\n one\n two\n", "b": 1}),
        ("p: $2a$11$abc", {"p": "$2a$11$abc"}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("include: x", {"include": "x"}),
    ],
)  # fmt: skip
def test_it_is_read_as_nats_server_reads_it(text: str, expected: object) -> None:
    assert plain(parse(text)) == expected


def test_a_variable_is_an_earlier_key_or_stands_in_the_environment() -> None:
    document = parse("N: 5\na { N: 6, b: $N }\nc: $N\nd: $PORT", {"PORT": "8mb"})
    assert plain(document) == {"N": 5, "a": {"N": 6, "b": 6}, "c": 5, "d": 8 << 20}
    assert document["N"].is_variable
    assert not document["c"].is_variable


def test_a_file_is_included_where_it_stands_and_can_be_overridden() -> None:
    files = {"u.conf": "users: [a]\nport: 1\n", "deep.conf": "include 'u.conf'"}
    document = parse("x { include ./none.conf }", files={"./none.conf": "y: 1"})
    assert plain(document) == {"x": {"y": 1}}
    document = parse("include deep.conf\nport: 2", files=files)
    assert plain(document) == {"users": ["a"], "port": 2}
    assert document["users"].place.file == "u.conf"
    assert not document.repeated


def test_a_key_given_twice_is_the_last_one_and_remembered() -> None:
    document = parse("a: 1\na: 2")
    assert plain(document) == {"a": 2}
    assert [(key, str(place)) for key, place in document.repeated] == [("a", "nats.conf:2:1")]


def test_a_value_knows_where_its_key_stands() -> None:
    document = parse("a: 1\n  b {\n    c: 1\n}")
    inner = document["b"].content
    assert isinstance(inner, ConfigMap)
    assert [str(v.place) for v in (document["a"], document["b"], inner["c"])] == [
        "nats.conf:1:1",
        "nats.conf:2:3",
        "nats.conf:3:5",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a {\n b: 1\n", "nats.conf:1:3: '{' is never closed"),
        ("a: [1", "nats.conf:1:4: '[' is never closed"),
        ("a: 'x", "nats.conf:1:4: ' is never closed"),
        ('\na: "\\q"', "nats.conf:2:5: unknown escape \\q"),
        ("a: b c", "nats.conf:1:6: 'c' after a value"),
        ("a: {} }", "nats.conf:1:7: '}' in a key"),
        ("a:\n", "nats.conf:1:1: 'a' has no value"),
        ("a", "nats.conf:1:1: 'a' has no value"),
        ("a: }", "nats.conf:1:1: 'a' has no value"),
        (": 1", "nats.conf:1:1: ':' where a key was expected"),
        ("{a: 1} b: 1", "nats.conf:1:8: 'b' after the end of the map"),
        ("a: $NO", "nats.conf:1:4: $NO: neither a key above it"),
        ("a: (\nx", "nats.conf:1:4: '(' is never closed"),
        ("\n include 'x.conf'", "nats.conf:2:2: include 'x.conf': cannot read it: No such file"),
        ("include me", "me:1:1: include 'me': the file includes itself"),
        ("a: " + "[" * 100, "more than 64 maps and arrays"),
        ("a: $LOOP", "$LOOP:1:1: $LOOP: the variable of the environment names itself"),
        ("a: $EMPTY", "nats.conf:1:4: $EMPTY: the variable of the environment is empty"),
        ("a: $TWO", "nats.conf:1:4: $TWO: the variable of the environment is not one value"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_column(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        parse(text, {"LOOP": "$LOOP", "EMPTY": " ", "TWO": "1\n2"}, {"me": "include me"})


def written(value: object, indent: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, dict):
        lines = [f"{indent} {written(k, '')}: {written(v, indent + ' ')}" for k, v in value.items()]
        return "{\n" + "\n".join(lines) + f"\n{indent}}} # end"
    if isinstance(value, list):
        return "[ " + ", ".join(written(v, indent).removesuffix(" # end") for v in value) + " ]"
    return str(value)


leaves = st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=8)
trees = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)  # fmt: skip


@given(trees)
def test_what_is_written_is_read_again(tree: dict[str, Any]) -> None:
    text = written(tree, "")
    assert plain(parse(text)) == tree


@given(st.text(alphabet="ab1$'\"\\{}[](),;:=#/ \n\t", max_size=40))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        parse(text)
    except ConfigurationError as error:
        assert re.match(r"nats\.conf:\d+:\d+: ", str(error))
