"""Reads the labels of numbers out of the source: of tables, documents, options, the console and metrics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard


class Labelled(NamedTuple):
    """A text that a reader sees, and the names of the numbers that stand below it."""

    text: str
    names: frozenset[str]


def _names(tree: ast.AST) -> frozenset[str]:
    found = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    return frozenset(found | {ast.literal_eval(each) for each in ast.walk(tree) if _is_text(each)})


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _heads(node: ast.AST, known: dict[str, list[str]]) -> list[str]:
    """The texts of a tuple, those of ``*numbers`` among them; nothing where one is not a text."""
    if not isinstance(node, ast.Tuple):
        return []
    found: list[str] = []
    for each in node.elts:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.append(each.value)
        elif isinstance(each, ast.Starred) and isinstance(each.value, ast.Name):
            found += known.get(each.value.id, [])
        else:
            return []
    return found


def headed(source: str) -> Iterator[Labelled]:
    """The heads of tables, with what the rows have below them; ``("Waiting", value)`` as well."""
    tree = ast.parse(source)
    everywhere: list[list[str]] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            here = _heads_of(function)
            everywhere += here
            yield from (Labelled(text, frozenset()) for texts in here for text in texts)
            yield from _below(function, here)
    for node in ast.walk(tree):  # rows that a function of their own makes
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield from _matched(everywhere, node.value.elts)


def _heads_of(function: ast.AST) -> list[list[str]]:
    known: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = _heads(node.value, {})
    found = [_heads(node, known) for node in ast.walk(function) if isinstance(node, ast.Tuple)]
    return [texts for texts in found if len(texts) > 1 and texts[0].isupper()]


def _below(function: ast.AST, heads: list[list[str]]) -> Iterator[Labelled]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add":
            yield from _matched(heads, node.args)
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
            yield from _matched(heads, node.value.elts)
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and _is_text(node.elts[0]):
            text = ast.literal_eval(node.elts[0])
            if not isinstance(node.elts[1], ast.Constant) and text[:1].isupper():
                yield Labelled(text, _names(node.elts[1]))


def _matched(heads: list[list[str]], cells: list[ast.expr]) -> Iterator[Labelled]:
    if all(map(_is_text, cells)):
        return
    for texts in heads:
        if len(texts) == len(cells):
            yield from map(Labelled, texts, map(_names, cells))


def keyed(source: str) -> Iterator[Labelled]:
    """Keys of documents, with the number that each has."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and _is_text(key) and isinstance(value, ast.Attribute):
                    yield Labelled(ast.literal_eval(key), frozenset((value.attr,)))


_COLUMN = re.compile(r"id: \"(\w+)\", title: \"([^\"]+)\"")
_SERIES = re.compile(r"name: \"(\w+)\", title: \"([^\"]+)\"")
_TITLE = re.compile(r"\btitle[:=]\s*(?:\$\{)?[\"`]([^\"`]+)[\"`]")
_TILE = re.compile(r"\[\"([A-Z][^\"]*)\", (?:count|rate|bytes)\(\w+\.(\w+)\)")


def shown(page: str) -> Iterator[Labelled]:
    """Titles of the console: of columns, curves and tiles, with the number that each has."""
    yield from (Labelled(title, frozenset()) for title in _TITLE.findall(page))
    for pattern in (_COLUMN, _SERIES):
        yield from (Labelled(title, frozenset((name,))) for name, title in pattern.findall(page))
    yield from (Labelled(title, frozenset((name,))) for title, name in _TILE.findall(page))


def measured(source: str) -> Iterator[Labelled]:
    """What each metric means, with the numbers that its reader takes."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = [*zip(node.keys, node.values, strict=True)]
        elif isinstance(node, ast.Tuple | ast.List):
            single = [each for each in node.elts if _is_metric(each)]
            is_pair = len(node.elts) == 2 and len(single) == 1
            pairs = [(node.elts[0], node.elts[1])] if is_pair else [(one, one) for one in single]
        for metric, value in pairs:
            if metric is not None and _is_metric(metric):
                name, _, meaning = (ast.literal_eval(each) for each in metric.args)
                numbers = _names(value) if value is not metric else frozenset()
                for what in ("lag", "unacknowledged"):  # a table of metrics alone
                    if value is metric and what in name.split("_"):
                        numbers |= {what}
                yield Labelled(meaning, frozenset() if "seconds" in name else numbers)


def _is_metric(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Metric"


def helps(source: str) -> Iterator[str]:
    """What options of a command line say of themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            texts = [each.value for each in node.keywords if each.arg == "help"]
            if getattr(node.func, "id", "") == "limits_of":
                texts += node.args[1:2]
            for each in texts:
                yield "".join(
                    part.value
                    for part in ast.walk(each)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
