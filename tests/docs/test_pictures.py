"""The pictures of the pages: they are there, say what they show, and are what is drawn now."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pyarrow as pa
import pytest

import guides
from diagrams import command
from diagrams.canvas import Canvas
from diagrams.flights import CHAINED, FLIGHTS, HOURS
from diagrams.pictures import PICTURES
from headrace.demo.flights import find_data, follow_batches, load_flights

_PAGES = sorted([*(guides.ROOT / "docs").rglob("*.md"), guides.ROOT / "README.md"])
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def test_the_diagrams_are_current() -> None:
    assert command.main(["--check"]) == 0, "run `make diagrams`"


def test_a_stale_diagram_is_found_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "IMAGES", tmp_path)
    assert command.main(["--check"]) == 1
    assert "stale: headrace.svg" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert command.main([]) == 0
    assert {path.stem for path in tmp_path.iterdir()} == set(PICTURES)
    assert command.main(["--check"]) == 0


@pytest.mark.parametrize("name", PICTURES)
def test_a_diagram_keeps_its_words_on_the_sheet_and_apart(name: str) -> None:
    root = ET.fromstring(PICTURES[name]().svg())
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    spans = []
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        size, x, y = (float(text.attrib[key]) for key in ("font-size", "x", "y"))
        long = len(text.text or "") * size * 0.58  # a wide font
        left = {"start": x, "middle": x - long / 2, "end": x - long}[text.attrib["text-anchor"]]
        assert left >= 0 and left + long <= width, text.text
        assert size <= y <= height - 4, text.text
        spans.append((y, left, left + long, text.text))
    for number, (y, left, right, words) in enumerate(spans):
        for other_y, other_left, other_right, others in spans[number + 1 :]:
            is_over = left < other_right and other_left < right and abs(y - other_y) < 11
            assert not is_over, (words, others)


def test_words_are_escaped() -> None:
    sheet = Canvas(100, 50, "a < b")
    sheet.text(1, 20, "<&>")
    root = ET.fromstring(sheet.svg())
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "a < b"
    assert root.findtext("{http://www.w3.org/2000/svg}text") == "<&>"


def test_every_picture_is_shown_and_described() -> None:
    shown = set()
    for page in _PAGES:
        for words, target in _IMAGE.findall(page.read_text()):
            assert len(words) > 20, f"{page.name}: {target} has no description"
            path = (page.parent / target).resolve()
            assert path.is_file(), f"{page.name}: {target}"
            shown.add(path.name)
    images = {path.name for path in (guides.ROOT / "docs" / "images").iterdir()}
    assert images == shown


def test_the_picture_of_the_demo_shows_what_is_in_the_data() -> None:
    flights = load_flights(find_data())
    assert flights.num_rows == FLIGHTS
    numbers = pa.array(range(1, FLIGHTS + 1), pa.int64())
    rows = flights.append_column("sequence", numbers).combine_chunks().to_batches()
    found: dict[int, list[tuple[int, int]]] = {}
    for legs in follow_batches({}, rows):
        columns = [legs.column(name).to_pylist() for name in ("hour", "carried", "added")]
        for hour, carried, added in zip(*columns, strict=True):
            if carried is not None and added is not None:
                found.setdefault(hour, []).append((carried, added))
    assert sum(map(len, found.values())) - CHAINED == sum(
        len(legs) for hour, legs in found.items() if hour not in {each.hour for each in HOURS}
    )
    for each in HOURS:
        carried, added = (sum(part) / each.legs for part in zip(*found[each.hour], strict=True))
        assert each.legs == len(found[each.hour])
        assert each.carried == pytest.approx(carried, abs=0.006)
        assert each.added == pytest.approx(added, abs=0.006)
