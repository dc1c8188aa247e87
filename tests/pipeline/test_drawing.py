"""One pipeline as a graph, a tree, Mermaid and SVG."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.drawing import Edge, Graph, Part, graph_of, mermaid_of, svg_of, tree_of

FILE = """
[pipeline]
name = "shop"
checkpoint = "checkpoint"
[sources.orders]
options = { stream = "ORDERS", password = "secret", user = "me" }
[sources.totals_in]
options = { stream = "TOTALS" }
[sources.names]
format = "json"
streaming = false
options = { path = "names" }
[views.paid]
sql = "SELECT * FROM orders JOIN names"
[[views.paid.expect]]
check = "amount > 0"
otherwise = "quarantine"
to = "rejected"
[views.both]
sql = "SELECT * FROM paid UNION SELECT * FROM totals_in"
[sinks.paid]
from = "paid"
format = "jetstream"
options = { stream = "TOTALS", subject = "totals" }
[sinks.rejected]
format = "json"
options = { path = "rejected" }
[sinks.both]
from = "both"
format = "noop"
after = "paid"
trigger = "available now"
"""
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)


@pytest.fixture
def graph(write: Callable[..., Path]) -> Graph:
    return graph_of(read(write(FILE)))


def test_parts_and_the_ways_between_them(graph: Graph) -> None:
    assert [(each.id, each.about) for each in graph.parts] == [
        ("source_orders", "stream ORDERS"),
        ("source_totals_in", "stream TOTALS"),
        ("source_names", "table of names"),
        ("view_paid", "SQL, 1 expectation"),
        ("view_both", "SQL"),
        ("sink_paid", "stream TOTALS"),
        ("sink_rejected", "json rejected"),
        ("sink_both", "noop"),
    ]
    assert set(graph.edges) == {
        Edge("source_orders", "view_paid"),
        Edge("source_names", "view_paid"),
        Edge("view_paid", "view_both"),
        Edge("source_totals_in", "view_both"),
        Edge("view_paid", "sink_paid"),
        Edge("sink_paid", "source_totals_in", "stream"),
        Edge("view_paid", "sink_rejected", "rejected"),
        Edge("view_both", "sink_both"),
        Edge("sink_paid", "sink_both", "after"),
    }


def test_a_tree_shows_each_part_once_in_full(graph: Graph) -> None:
    assert tree_of(graph) == [
        "orders  source, stream ORDERS",
        "└─ paid  view, SQL, 1 expectation",
        "   ├─ both  view, SQL",
        "   │  └─ both  sink, noop",
        "   ├─ paid  sink, stream TOTALS",
        "   └─ rejected  sink, json rejected, rejected rows",
        "totals_in  source, stream TOTALS",
        "└─ both  view, SQL (see above)",
        "names  source, table of names",
        "└─ paid  view, SQL, 1 expectation (see above)",
        "sink paid writes what is read by source totals_in",
        "sink paid runs before sink both",
    ]


def test_mermaid_has_every_part_and_every_way(graph: Graph) -> None:
    lines = mermaid_of(graph).splitlines()
    assert lines[0] == "flowchart LR"
    assert '    view_paid["paid<br/>SQL, 1 expectation"]' in lines
    assert "    view_paid -. rejected .-> sink_rejected" in lines
    assert len(lines) == 1 + len(graph.parts) + len(graph.edges)


def test_in_svg_no_part_lies_on_another_and_rows_go_to_the_right(graph: Graph) -> None:
    root = ElementTree.fromstring(svg_of(graph))
    space = "{http://www.w3.org/2000/svg}"
    boxes = {}
    for part, group in zip(graph.parts, root.findall(f"{space}g"), strict=True):
        rect = group.find(f"{space}rect")
        assert rect is not None
        boxes[part.id] = tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
    assert len(set(boxes.values())) == len(graph.parts)
    for edge in graph.edges:
        if edge.way in ("rows", "rejected"):
            assert boxes[edge.begin][0] + boxes[edge.begin][2] < boxes[edge.end][0]
    places = sorted(boxes.values())
    for (x, y, _, height), (other_x, other_y, _, _) in itertools.pairwise(places):
        assert other_x > x or other_y >= y + height
    assert len(root.findall(f"{space}path")) == len(graph.edges)


@given(NAMES, NAMES)
def test_any_text_is_safe_in_a_picture(name: str, about: str) -> None:
    graph = Graph(
        (Part("source", "a", name), Part("sink", "b", about)), (Edge("source_a", "sink_b"),)
    )
    texts = [each.text for each in ElementTree.fromstring(svg_of(graph)).iter() if each.text]
    assert name in texts
    label = re.search(r'sink_b\[/"(.*)"/\]', mermaid_of(graph))
    assert label is not None
    assert not set('"<>') & set(label[1].replace("<br/>", "", 1))


def test_no_secret_is_in_a_picture(graph: Graph) -> None:
    for text in (svg_of(graph), mermaid_of(graph), *tree_of(graph), str(graph.document())):
        assert "secret" not in text
