from __future__ import annotations

from headrace.toml_lines import find_line, find_lines

TEXT = '''# a comment = 1
[pipeline]
name = "x"  # [not.a.table]

[sources."a.b"]
options.stream = "S"
schema = """
[views.not]
key = 1
"""
list = [
  "[x]",
  # ]
  1]

[[views.v.expect]]
check = "a"
[[views.v.expect]]
check = 'b # ['
inline = { deep = 1 }
'''


def test_tables_and_keys_have_their_lines() -> None:
    assert find_lines(TEXT) == {
        ("pipeline",): 2,
        ("pipeline", "name"): 3,
        ("sources", "a.b"): 5,
        ("sources", "a.b", "options", "stream"): 6,
        ("sources", "a.b", "schema"): 7,
        ("sources", "a.b", "list"): 11,
        ("views", "v", "expect", "0"): 16,
        ("views", "v", "expect", "0", "check"): 17,
        ("views", "v", "expect", "1"): 18,
        ("views", "v", "expect", "1", "check"): 19,
        ("views", "v", "expect", "1", "inline"): 20,
    }


def test_what_has_no_line_has_that_of_what_holds_it() -> None:
    found = find_lines(TEXT)
    assert find_line(found, ("views", "v", "expect", "1", "inline", "deep")) == 20
    assert find_line(found, ("pipeline", "checkpoint")) == 2
    assert find_line(found, ("sinks",)) == 0
