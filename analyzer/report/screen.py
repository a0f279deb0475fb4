"""What every terminal report draws on: widths, headings, tables, and names from logs made harmless."""

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, OverflowMethod, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from analyzer.report.formatting import clean_text

WIDEST = 150


@dataclass(frozen=True, slots=True)
class Screen:
    """A console that shows hostile text as inert ink and stays readable from 20 columns to very wide."""

    console: Console

    @property
    def ascii_only(self) -> bool:
        return self.console.options.ascii_only

    @property
    def width(self) -> int:
        return min(self.console.width, WIDEST)

    def name(self, text: str, style: str = "") -> Text:
        """Hostile text as inert ink: no control characters, no markup, nothing the encoding lacks."""
        encoding = self.console.encoding
        return Text(clean_text(text).encode(encoding, "replace").decode(encoding), style)

    def line(self, renderable: RenderableType = "") -> None:
        self.console.print(renderable, width=self.width)

    @property
    def cut(self) -> OverflowMethod:
        return "crop" if self.ascii_only else "ellipsis"

    def heading(self, title: str) -> None:
        text = Text(title, "bold")
        text.truncate(max(1, self.width - 4), overflow=self.cut)
        self.line()
        self.line(Rule(text, align="left", style="dim"))

    def table(self, *, header: bool = True) -> Table:
        return Table(box=None, show_header=header, header_style="dim", expand=True, padding=(0, 1), pad_edge=False)

    def shortened(self, text: Text, cells: int) -> Text:
        """Cut in the middle: paths and session names differ at their ends."""
        if text.cell_len <= cells or cells < 8:
            return text
        mark = ".." if self.ascii_only else "…"
        head = set_cell_size(text.plain, (cells - len(mark)) // 3).rstrip()
        tail = text.plain
        while cell_len(tail) > cells - len(mark) - cell_len(head):
            tail = tail[1:]
        return Text(f"{head}{mark}{tail}", text.style)
