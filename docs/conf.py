"""How the site is built: ``make docs``. Pages are Markdown, the reference comes from the code."""

from __future__ import annotations

import ast
import gc
import re
import textwrap
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
gc.disable()  # a third of the time of a build, which keeps nearly all that it makes

project = "fedcircuits"
author = copyright = "The fedcircuits developers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
root_doc = "index"
exclude_patterns = ["_templates", "_static"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = "fedcircuits"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_copyright = False
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say them in words
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False


class CodeHead(Directive):
    """The docstring of a module: ``{head} methods/fedpc/training.py``.

    Paragraphs become paragraphs, with bold words and code; indented blocks keep their columns.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = ROOT / "src" / "fedcircuits" / self.arguments[0]
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        self.state.document.settings.record_dependencies.add(str(path))
        return [self._node(part) for part in text.split("\n\n")]

    def _node(self, part: str) -> nodes.Node:
        if part.startswith(" "):
            block = textwrap.dedent(part)
            return nodes.literal_block(block, block, language="text")
        paragraph = nodes.paragraph()
        for words in re.split(r"(\*\*[^*]+\*\*|``[^`]+``)", " ".join(part.split())):
            kind = {"**": nodes.strong, "``": nodes.literal}.get(words[:2])
            plain = words if kind is None else words[2:-2]
            paragraph += nodes.Text(plain) if kind is None else kind(plain, plain)
        return paragraph


def setup(app: Sphinx) -> None:
    app.add_directive("head", CodeHead)


# Docstrings that scikit-learn's base classes hand down refer to its own glossary and labels.
suppress_warnings = ["ref.term", "ref.ref"]
