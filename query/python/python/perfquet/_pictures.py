"""Pictures and pages of reports."""

from __future__ import annotations

import html
import os


class Picture:
    """An SVG image, or an HTML page, with its scripts."""

    def __init__(self, text: str, is_page: bool):
        self._text = text
        self._is_page = is_page

    @property
    def svg(self) -> str:
        """The SVG.

        Raises:
            ValueError: it is a page.
        """
        if self._is_page:
            raise ValueError("a page is not an SVG image; use html")
        return self._text

    @property
    def html(self) -> str:
        """The page, or a page with the image."""
        return self._text if self._is_page else f"<!DOCTYPE html><meta charset='utf-8'>{self._text}"

    def save(self, path) -> None:
        """Writes the file, which replaces an existing one."""
        with open(os.fsdecode(path), "w", encoding="utf-8") as file:
            file.write(self._text)

    def _repr_html_(self) -> str:
        # Names come from traces: the scripts of the picture run without access to the notebook.
        height = 900 if self._is_page else 600
        source = html.escape(self.html, quote=True)
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{height}px;border:0" srcdoc="{source}"></iframe>'
        )

    def __repr__(self) -> str:
        kind = "page" if self._is_page else "SVG"
        return f"<perfquet.Picture: {kind}, {len(self._text):,} characters; save(path) writes it>"
