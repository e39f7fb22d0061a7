"""What stands on a terminal as a page that a browser can open: its text and its colours."""

import io

from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>A terminal</title><style>
body {{ margin: 0; padding: 16px; background: {background}; color: {foreground}; }}
pre {{ margin: 0; font: 15px/1.35 "DejaVu Sans Mono", monospace; }}
</style></head><body><pre>{code}</pre></body></html>
"""
OTHER_NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}
"""pyte names colours as the first terminals did."""


def as_page(rows: list[list[Char]]) -> str:
    """HTML of a screen's `rows`, the empty ones at its end left out."""
    console = Console(record=True, width=max(map(len, rows), default=80), file=io.StringIO(), color_system="truecolor")
    while rows and all(cell.data == " " for cell in rows[-1]):
        rows = rows[:-1]
    for row in rows:
        line = Text()
        for cell in row:
            line.append(cell.data, _style(cell))
        line.rstrip()
        console.print(line, soft_wrap=True)
    return console.export_html(theme=SVG_EXPORT_THEME, code_format=PAGE, inline_styles=True)


def _style(cell: Char) -> Style:
    return Style(
        color=_color(cell.fg), bgcolor=_color(cell.bg), bold=cell.bold, reverse=cell.reverse, underline=cell.underscore
    )


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if len(name) == 6 and all(letter in "0123456789abcdef" for letter in name):
        return f"#{name}"
    return OTHER_NAMES.get(name, name.replace("bright", "bright_"))
