"""Tables that show their whole content: in a terminal all columns but the names wrap, elsewhere
none does."""

from collections.abc import Sequence


def show(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column holds names."""
    from rich import box, console, table  # noqa: PLC0415 (heavier than parsing needs)

    out = console.Console()
    if not out.is_terminal:
        out = console.Console(width=1000)
    shown = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    longest = max(len(row[0]) for row in rows)
    shown.add_column(titles[0], no_wrap=True, min_width=longest)
    for title in titles[1:]:
        shown.add_column(title, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    out.print(shown, markup=False, crop=False)
