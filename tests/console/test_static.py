"""The files of the pages: nothing vendored has changed, nothing leaves the machine, nothing is markup."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path


def test_vendored_files_are_the_ones_of_the_manifest(static: Path) -> None:
    entries = json.loads((static / "vendor" / "MANIFEST.json").read_text())
    named = {entry["file"] for entry in entries}
    there = {path.name for path in (static / "vendor").iterdir() if path.suffix in (".js", ".css")}
    assert there == named
    for entry in entries:
        digest = hashlib.sha256((static / "vendor" / entry["file"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], entry["file"]
        assert entry["license"]


def own_files(static: Path) -> list[Path]:
    return [
        path
        for path in static.rglob("*")
        if path.suffix in (".js", ".html", ".css") and "vendor" not in path.parts
    ]


def test_pages_load_nothing_from_elsewhere_and_write_no_markup(static: Path) -> None:
    for path in own_files(static):
        text = path.read_text()
        # Addresses in texts for people name this machine.
        assert not re.search(r"https?://(?!127\.0\.0\.1)", text.replace("http://www.w3.org", "")), (
            path
        )
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "dangerouslySet",
            "eval(",
            "new Function",
        ):
            assert word not in text, f"{path.name}: {word}"
        assert not re.search(r"<script(?![^>]*src=)", text), path
        assert not re.search(r"\son\w+=\"", text), path


def test_every_import_is_a_file_that_is_there(static: Path) -> None:
    for path in own_files(static):
        for target in re.findall(r'from "(/[^"]+)"', path.read_text()):
            assert (static / target.lstrip("/")).is_file(), f"{path.name} imports {target}"
