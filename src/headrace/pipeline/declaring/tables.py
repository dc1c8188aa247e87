"""Which tables a query of SQL reads, as far as that can be told without Spark. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..model import Declared
from ..problems import Problem, did_you_mean

_TOKENS: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>`[^`]*`|[A-Za-z_]\w*)|"
    r"(?P<sign>[^\s\w])|\d\w*",
    re.DOTALL,
)
_CATALOGS: Final = (
    "spark.sql.catalog",
    "spark.sql.warehouse",
    "spark.sql.extensions",
    "spark.hadoop.",
)
_NO_TABLES: Final = frozenset({"SELECT", "VALUES", "LATERAL", "TABLE", "STREAM", "ONLY"})


def tables_in_sql(sql: str) -> list[str]:
    """The names that stand after FROM and JOIN where only a table can, without those that WITH defines.

    Names of several parts, and files such as ``parquet.`/data` ``, are left out, as Spark alone knows them.
    """
    tokens = [found for found in _TOKENS.finditer(sql) if found.lastgroup]
    words = [(found[0] if found.lastgroup != "text" else "''") for found in tokens]
    upper = [word.upper() for word in words]
    defined = {
        words[at].strip("`").lower()
        for at in range(len(words) - 2)
        if (upper[at + 1], upper[at + 2]) == ("AS", "(")
    }
    found: list[str] = []
    selects = [False]  # whether there is a SELECT, for each parenthesis that is open
    for at, word in enumerate(upper):
        if word == "(":
            selects.append(False)
        elif word == ")" and len(selects) > 1:
            selects.pop()
        elif word == "SELECT":
            selects[-1] = True
        elif word in ("FROM", "JOIN") and selects[-1] and at and upper[at - 1] != "DISTINCT":
            after = [*words[at + 1 : at + 3], "", ""]
            name = after[0].strip("`")
            is_plain = tokens[at + 1].lastgroup == "word" if at + 1 < len(tokens) else False
            if is_plain and after[0].upper() not in _NO_TABLES and after[1] not in (".", "("):
                found.append(name)
    return [each for each in dict.fromkeys(found) if each.lower() not in defined]


def check_tables(declared: Declared) -> Iterator[Problem]:
    """Tables that the SQL of a view names and that there are not; a catalog of one's own may have them."""
    if any(key.lower().startswith(_CATALOGS) for key in declared.conf):
        return
    known = [*declared.sources, *declared.views]
    lowered = {name.lower() for name in known}
    for view in declared.views.values():
        for name in tables_in_sql(view.sql):
            if name.lower() not in lowered:
                others = [each for each in known if each != view.name]
                hint = did_you_mean(name, others)
                yield Problem(
                    view.place,
                    f"view {view.name!r}: its SQL reads {name!r}, which there is not{hint}",
                )
