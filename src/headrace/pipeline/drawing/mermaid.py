"""A graph in the language of Mermaid, which GitHub and many wikis draw. Pure."""

from __future__ import annotations

from typing import Final

from .parts import Edge, Graph, Part

_SHAPES: Final = {"source": ("[(", ")]"), "view": ("[", "]"), "sink": ("[/", "/]")}
_ARROWS: Final = {
    "rows": "-->",
    "rejected": "-. rejected .->",
    "after": "-. before .->",
    "stream": "-. stream .->",
}


def mermaid_of(graph: Graph) -> str:
    """The text of a flowchart."""
    lines = ["flowchart LR", *map(_part, graph.parts), *map(_edge, graph.edges)]
    return "\n    ".join(lines) + "\n"


def _part(part: Part) -> str:
    begin, end = _SHAPES[part.kind]
    return f'{part.id}{begin}"{_text(part.name)}<br/>{_text(part.about)}"{end}'


def _edge(edge: Edge) -> str:
    return f"{edge.begin} {_ARROWS[edge.way]} {edge.end}"


def _text(text: str) -> str:
    """Mermaid's own entities: a quote would end the label, < would begin a tag."""
    for sign, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, entity)
    return text
