"""From a file to a declared pipeline: every problem at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ...subjects import is_valid_subject
from ...toml_lines import Path as Keys
from ..graph import check_graph, names_in_sql
from ..model import (
    Declared,
    Expectation,
    Function,
    LeaseSettings,
    PipelineError,
    Place,
    Problem,
    Publishing,
    Sink,
    Source,
    View,
    Watermark,
    did_you_mean,
)
from ..triggers import CONTINUOUS, Trigger
from . import functions
from .document import Document, read_toml
from .keys import Reader

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


_SECTIONS: Final = (
    "pipeline",
    "spark",
    "sources",
    "views",
    "sinks",
    "lease",
    "metrics",
    "profiles",
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def read(file: Path, profile: str = "", environment: Mapping[str, str] | None = None) -> Declared:
    """Read a pipeline from a ``.toml`` or a ``.py`` file.

    Args:
        profile: whose values take precedence; "" for none.
        environment: the variables for ``${NAME}``; default: those of this process.

    Raises:
        PipelineError: everything that is wrong with the file.
    """
    if file.suffix == ".py":
        return declare(functions.read_python(file, profile, environment))
    if file.suffix == ".toml":
        return declare(read_toml(file, profile, environment))
    text = "a pipeline is a .toml or a .py file"
    raise PipelineError([Problem(Place(file), text)])


def declare(document: Document) -> Declared:
    """Check a document and make a pipeline of it. Raises PipelineError."""
    reader = Reader(document)
    tree = document.tree
    for section in tree:
        if section not in _SECTIONS:
            reader.note((section,), f"unknown table {section!r}{did_you_mean(section, _SECTIONS)}")
    pipeline = reader.table("pipeline", tree.get("pipeline", {}), ("pipeline",))
    spark = reader.table("spark", tree.get("spark", {}), ("spark",))
    name = pipeline["name"] or ""
    if not name:
        reader.note(
            ("pipeline",),
            "name is missing: checkpoints and results are kept under it. Where it was left out the file's "
            f"name was taken: name = {document.file.stem!r} goes on with what is there",
        )
    elif _PIPELINE_NAME.fullmatch(name) is None:
        reader.note(("pipeline", "name"), f"name is {name!r}; accepted: letters, digits, - and _")
    if not pipeline["checkpoint"]:
        reader.note(("pipeline",), "checkpoint is missing: where the queries keep how far they are")
    sources = {each: _source(reader, each, raw) for each, raw in reader.named("sources").items()}
    raw_views = reader.named("views")
    known = [*sources, *raw_views]
    views = {each: _view(reader, each, raw, known) for each, raw in raw_views.items()}
    trigger = pipeline["trigger"] or CONTINUOUS
    sinks = {each: _sink(reader, each, raw, trigger) for each, raw in reader.named("sinks").items()}
    _check_names(reader, sources, views, sinks)
    declared = Declared(
        name=name,
        file=document.file,
        place=document.place("pipeline"),
        checkpoint=pipeline["checkpoint"] or "",
        sources=sources,
        views=views,
        sinks=sinks,
        master=spark["master"],
        conf=spark["conf"],
        on_failure=pipeline["on_failure"],
        fast_local_checkpoint=pipeline["fast_local_checkpoint"],
        lease=_lease(reader, tree["lease"]) if "lease" in tree else None,
        **(_metrics(reader, tree["metrics"]) if "metrics" in tree else {}),
        stop_timeout_s=pipeline["stop_timeout"],
        restart=pipeline["restart"],
        wait_for_server_s=pipeline["wait_for_server"],
        profile=document.profile,
    )
    if declared.fast_local_checkpoint and not declared.is_local_checkpoint:
        reader.note(
            ("pipeline", "fast_local_checkpoint"),
            "fast_local_checkpoint is for a directory of this machine, and checkpoint is a URL",
        )
    problems = [*reader.problems, *check_graph(declared), *check_tables(declared)]
    if problems:
        raise PipelineError(sorted(dict.fromkeys(problems), key=lambda each: each.place))
    return declared


def _source(reader: Reader, name: str, raw: Any) -> Source:
    path = ("sources", name)
    values = reader.table("sources", raw, path)
    return Source(
        name,
        reader.document.place(*path),
        values["format"],
        values["schema"],
        values["streaming"],
        values["options"],
        _lines(reader, path, values["options"]),
    )


def _view(reader: Reader, name: str, raw: Any, known: list[str]) -> View:
    path = ("views", name)
    values = reader.table("views", raw, path)
    if bool(values["sql"]) == bool(values["python"]):
        reader.note(
            path, f"view {name!r} has {'both' if values['sql'] else 'neither'} sql and python"
        )
    function = _function(reader, values["python"], (*path, "python"))
    if values["from"] is not None:
        inputs = values["from"]
    elif function is not None:
        inputs = tuple(each for each in function.parameters if each != "spark")
    else:
        inputs = names_in_sql(values["sql"] or "", [each for each in known if each != name])
    expectations = tuple(
        _expectation(reader, index, each, (*path, "expect"))
        for index, each in enumerate(values["expect"])
    )
    seen = [each.name for each in expectations]
    for each in expectations:
        if seen.count(each.name) > 1:
            reader.note((*path, "expect"), f"view {name!r} has two expectations {each.name!r}")
    place = reader.document.place(*path)
    otherwise, letters = values["otherwise"], values["letters"]
    if (otherwise == "quarantine") != bool(letters):
        reader.note(path, "otherwise = 'quarantine' and letters = '<subject>' belong together")
    elif letters and not is_valid_subject(letters.encode()):
        reader.note((*path, "letters"), f"letters is {letters!r}, which is no subject")
    if values["rehearse"] and function is None:
        reader.note((*path, "rehearse"), f"view {name!r} has no python to rehearse")
    watermark = None
    if values["watermark"]:
        column, delay_s = values["watermark"]
        watermark = Watermark(column, delay_s, reader.document.place(*path, "watermark"))
    return View(
        name,
        place,
        values["sql"] or "",
        function,
        inputs,
        expectations,
        otherwise,
        letters,
        values["rehearse"],
        watermark,
    )


def _expectation(reader: Reader, index: int, raw: Any, path: Keys) -> Expectation:
    at = (*path, str(index))
    values = reader.table("expect", raw, at)
    name, check = values["name"] or values["check"] or "", values["check"] or ""
    if not check:
        reader.note(at, "an expectation needs a check, a condition in SQL")
    if (values["otherwise"] == "quarantine") != bool(values["to"]):
        reader.note(at, "otherwise = 'quarantine' and to = '<sink>' belong together")
    place = reader.document.place(*at)
    return Expectation(name, check, place, values["otherwise"], values["to"])


def _sink(reader: Reader, name: str, raw: Any, trigger: Trigger) -> Sink:
    path = ("sinks", name)
    values = reader.table("sinks", raw, path)
    if bool(values["format"]) == bool(values["python"]):
        both = "both" if values["format"] else "neither"
        reader.note(path, f"sink {name!r} has {both} format and python")
    function = _function(reader, values["python"], (*path, "python"))
    if function is not None and len(function.parameters) not in (2, 3) and not function.takes_more:
        text = (
            f"{function.name} takes {len(function.parameters)} parameters; a sink's function takes the rows "
            "of a batch, its number and, if it has a third, the identity of the run"
        )
        reader.note((*path, "python"), text)
    if values["rehearse"] and function is None:
        reader.note((*path, "rehearse"), f"sink {name!r} has no python to rehearse")
    return Sink(
        name=name,
        place=reader.document.place(*path),
        of=values["from"],
        format=values["format"],
        mode=values["mode"],
        partition_by=values["partition_by"],
        options=values["options"],
        function=function,
        trigger=values["trigger"] or trigger,
        after=values["after"],
        rehearse=values["rehearse"],
        lines=_lines(reader, path, values["options"]),
    )


def _lines(reader: Reader, path: Keys, options: Mapping[str, str]) -> dict[str, Place]:
    return {name: reader.document.place(*path, "options", name) for name in options}


def _function(reader: Reader, given: Any, path: Keys) -> Function | None:
    if given is None:
        return None
    place = reader.document.place(*path)
    try:
        return functions.find(given, reader.document.file, place)
    except PipelineError as error:
        reader.problems += error.problems
        return None


def _lease(reader: Reader, raw: Any) -> LeaseSettings:
    values = reader.table("lease", raw, ("lease",))
    return LeaseSettings(reader.document.place("lease"), **values)


def _metrics(reader: Reader, raw: Any) -> dict[str, Any]:
    values = reader.table("metrics", raw, ("metrics",))
    address, servers = values.pop("address"), values["servers"]
    if address is None and not servers:
        text = 'address or servers is missing: write address = "127.0.0.1:9465"'
        reader.note(("metrics",), text)
    place = reader.document.place("metrics")
    return {"metrics": address, "published": Publishing(place, **values) if servers else None}


def _check_names(reader: Reader, *kinds: Mapping[str, Any]) -> None:
    sources, views, sinks = kinds
    for kind, named in zip(("sources", "views", "sinks"), kinds, strict=True):
        for name in named:
            if _NAME.fullmatch(name) is None:
                text = f"the name {name!r}: accepted are letters, digits and _, a letter first"
                reader.note((kind, name), text)
    for name in views:
        if name in sources:
            reader.note(("views", name), f"there is a source {name!r}, too")
    if not sinks:
        reader.note(("sinks",), "there is no sink: write [sinks.<name>]")
