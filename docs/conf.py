"""Sphinx: `sphinx-build -W -b html docs build/docs`."""

from kafkaprod import __version__

project = "kafkaprod"
copyright = "the kafkaprod authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"kafkaprod {__version__}"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
