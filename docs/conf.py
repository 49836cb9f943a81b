"""Sphinx: `sphinx-build -W -b html docs build/docs`."""

import functools
import html
import importlib.util
import inspect
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

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
html_favicon = "_static/favicon.svg"
html_baseurl = os.environ.get("KAFKAPROD_DOCS_URL", "")  # where they are published: each page then names its address
copybutton_exclude = ".linenos, .gp, .go"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
# The page of the API has the Spark functions, too; PySpark is in the extra dev-all only.
autodoc_mock_imports = [
    name
    for name in ("opentelemetry", "prometheus_client", "pyarrow", "pyspark", "pytest")
    if not importlib.util.find_spec(name)
]
suppress_warnings = ["ref.python"]  # names of attributes that several classes have
napoleon_use_ivar = True  # what a class documents as Attributes is not listed again as members

search_words: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("search.toml").read_text("utf-8")
)

_SHORT_SECTION = re.compile(r"(Returns|Raises|Yields): (\S.*)")
_PAGE = re.compile(r"\bdocs/([\w-]+)\.md\b")  # a page, as docstrings name it
_SIGNATURE = re.compile(r"[\w.]+\(.*\).*")  # of a compiled method, before its text
_SECTIONS = {"Args:", "Attributes:", "Raises:", "Returns:", "Yields:"}


def _to_sections(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Rewrite what docstrings here write shorter than napoleon reads: `Returns: text` in a line, indented examples."""
    rewritten: list[str] = []
    in_section = False
    for number, line in enumerate(_PAGE.sub(r":doc:`\1`", line) for line in lines):
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


def _is_shown(found: object) -> bool:
    """Return whether something of a class has an entry: a method or a property with a text."""
    kinds = (property, staticmethod, classmethod, functools.cached_property)
    return (inspect.isroutine(found) or isinstance(found, kinds)) and bool(inspect.getdoc(found))


def _with_table(app: object, what: str, name: str, thing: object, options: dict[str, Any], lines: list[str]) -> None:
    """Append the table of the methods and properties that a class shows on its page."""
    wanted = options.get("members")
    if what != "class" or not wanted:
        return
    known = list(wanted) if isinstance(wanted, list) else [each for each in vars(thing) if not each.startswith("_")]
    if name == "kafkaprod.Producer":  # compiled, in a base class: they have directives of their own
        known = ["send", "try_send", *known]
    left_out = options.get("exclude-members") or options.get("exclude_members") or ()  # by version of Sphinx
    shown = [each for each in known if each not in left_out and _is_shown(inspect.getattr_static(thing, each, None))]
    if len(shown) > 2:
        lines += ["", ".. list-table::", "   :widths: auto", ""]
    for each in shown if len(shown) > 2 else ():
        text = inspect.getdoc(getattr(thing, each)) or ""
        first = next((line for line in text.splitlines() if line and not _SIGNATURE.fullmatch(line)), "")
        lines += [f"   * - :any:`{each} <{name}.{each}>`", f"     - {first}"]
    lines.append("")


def _describe(app: object, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Give a page its first paragraphs as description, for search engines and cards of links."""
    if doctree is None:
        return
    first = ""
    for found in doctree.findall(nodes.paragraph):
        if len(first) < 80 and not isinstance(found.parent, nodes.entry):  # not a cell of a table
            first = f"{first} {' '.join(found.astext().split())}".strip()
    text = html.escape(first[:300], quote=True)
    title = html.escape(re.sub("<.*?>", "", str(context.get("title", ""))), quote=True)
    context["metatags"] = (
        f'{context.get("metatags", "")}<meta name="description" content="{text}">\n'
        f'<meta property="og:title" content="{title}">\n<meta property="og:description" content="{text}">\n'
    )


class _Words(SphinxTransform):
    """Makes what people search for entries of the index, which lead to their headings."""

    default_priority = 400  # before the index of the page is taken

    def apply(self, **_: Any) -> None:
        """Put the entries into the sections. Raises ExtensionError: a heading is not there."""
        words = dict(self.config.search_words.get(self.env.docname, {}))
        for section in list(self.document.findall(nodes.section)):
            place = section["ids"][0]
            entries = [("single", word, place, "main", None) for word in words.pop(section[0].astext(), ())]
            section.insert(1, addnodes.index(entries=entries))
        if words:
            raise ExtensionError(f"search.toml has words for headings that {self.env.docname}.md lacks: {set(words)}")


def setup(app: Sphinx) -> None:
    """Connect before napoleon, and after it."""
    app.add_config_value("search_words", {}, "env")  # what changes it makes all pages again
    app.add_transform(_Words)
    app.connect("autodoc-process-docstring", _to_sections, priority=400)
    app.connect("autodoc-process-docstring", _with_table, priority=900)
    app.connect("html-page-context", _describe)
