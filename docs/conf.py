"""Sphinx: Markdown pages, no network, warnings are errors (`nox -s docs`)."""

project = "fastrnns harness"
author = ""
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "evidence"]
html_theme = "alabaster"
html_theme_options = {"description": "Numbers that can be trusted, and repeated", "fixed_sidebar": True}
myst_heading_anchors = 3
html_copy_source = False
