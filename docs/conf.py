"""How the documentation site is made: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

project = "Headrace"
copyright = "the authors of Headrace"  # noqa: A001 (Sphinx's name)
release = re.search(
    r'__version__.*"(.+)"', (ROOT / "src" / "headrace" / "_version.py").read_text()
)[1]  # type: ignore[index]
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "requirements"]
source_suffix = {".md": "markdown"}
master_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

napoleon_use_ivar = True  # fields are described once, with their class

# Names of fields in descriptions are no links; several classes have one of a name.
suppress_warnings = ["ref.python"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_inherit_docstrings = True
autodoc_preserve_defaults = True

# What a button copies is what is typed: no prompt, and of a session only what stands behind one.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"Headrace {release}"
html_static_path: list[str] = []
html_favicon = "../src/headrace/console/static/icon.svg"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
