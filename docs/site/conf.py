"""Sphinx's configuration of the documentation site; ``make docs`` runs build.py beside this file."""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from exarl.version import __version__

project = "EXARL"
copyright = "the EXARL developers"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Parts of pages begin at any level: the repository shows these pages too.
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

highlight_language = "text"  # of blocks without a language
smartquotes = False

html_theme = "furo"
html_title = f"EXARL {__version__}"
html_static_path = ["static"]
html_css_files = ["exarl.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style, pygments_dark_style = "friendly", "monokai"


def setup(app: Sphinx) -> None:
    """Show diagrams of Mermaid as text: its program would be fetched from the network."""
    app.add_lexer("mermaid", TextLexer)
