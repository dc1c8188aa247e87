from __future__ import annotations

from pathlib import Path

from headrace.pipeline.keys import TABLES
from headrace.pipeline.reading import read

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
SHOWN = {
    "sources": "[sources.<name>]",
    "views": "[views.<name>]",
    "expect": "[[views.<name>.expect]]",
    "sinks": "[sinks.<name>]",
}


def table_of_keys() -> str:
    """Every key, as it stands in the documentation."""
    rows = []
    for table, keys in TABLES.items():
        for key in keys:
            shown = key.default
            if isinstance(shown, bool):
                shown = "true" if shown else "false"
            elif isinstance(shown, float):
                shown = f"{shown:g}s"
            elif isinstance(shown, tuple):
                shown = ", ".join(shown)
            default = f"`{shown}`" if shown else ""
            rows.append(
                f"| `{SHOWN.get(table, f'[{table}]')}` | `{key.name}` | {default} | {key.doc} |"
            )
    return "\n".join(rows)


def test_the_page_has_every_key() -> None:
    _, _, rest = PAGE.read_text().partition("<!-- keys: checked by the tests -->\n")
    table = rest.partition("\n\n")[0]
    assert table.splitlines()[2:] == table_of_keys().splitlines()


def test_the_example_of_the_page_is_a_pipeline(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("```toml\n")[2].partition("```")[0]
    assert text.startswith("# orders.toml")
    file = tmp_path / "orders.toml"
    file.write_text(text)
    declared = read(file)
    assert declared.views["paid"].inputs == ("orders",)
    assert list(declared.sinks) == ["paid", "rejected"]
    python = (
        PAGE.read_text().rpartition("## In Python")[2].partition("```\n")[2].partition("```")[0]
    )
    made = tmp_path / "orders.py"
    made.write_text(python)
    assert list(read(made).views) == ["paid"]
