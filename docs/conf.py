"""Sphinx: `sphinx-build -W -b html docs build/docs`."""

import importlib.util
import re

from sphinx.application import Sphinx

from kafkaprod import __version__

project = "kafkaprod"
copyright = "the kafkaprod authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"kafkaprod {__version__}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
copybutton_exclude = ".linenos, .gp, .go"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
# The page of the API has the Spark functions, too; PySpark is in the extra dev-all only.
autodoc_mock_imports = [
    name for name in ("pyspark", "pyarrow", "prometheus_client") if not importlib.util.find_spec(name)
]
suppress_warnings = ["ref.python"]  # names of attributes that several classes have
napoleon_use_ivar = True  # what a class documents as Attributes is not listed again as members

_SHORT_SECTION = re.compile(r"(Returns|Raises|Yields): (\S.*)")
_SECTIONS = {"Args:", "Attributes:", "Raises:", "Returns:", "Yields:"}


def _to_sections(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Rewrite what docstrings here write shorter than napoleon reads: `Returns: text` in a line, indented examples."""
    rewritten: list[str] = []
    in_section = False
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if match := _SHORT_SECTION.fullmatch(line):
            rewritten += [f"{match[1]}:", f"    {match[2]}"]
            in_section = True
            continue
        if line.strip() and not indent:
            in_section = line in _SECTIONS
        is_example = indent and not in_section and number and not lines[number - 1].strip()
        if is_example and rewritten and not any(part.endswith("::") for part in rewritten[-2:]):
            rewritten += ["::", ""]
        rewritten.append(line)
    lines[:] = rewritten


def setup(app: Sphinx) -> None:
    """Connect before napoleon."""
    app.connect("autodoc-process-docstring", _to_sections, priority=400)
