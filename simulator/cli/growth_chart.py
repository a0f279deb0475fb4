"""The chart of `kv-growth` as a file, by altair and vl-convert from the extra `charts`."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from simulator.exercises import GrowthStep


def check_target(path: Path) -> None:
    """Before the model runs: a known format, a folder that exists, and the libraries."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"cannot write a chart to {path}", "the file's name ends in .png or .svg")
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(f"cannot write a chart to {path}", "its folder must exist, and it must not be one")
    missing = [package for module, package in _LIBRARIES if find_spec(module) is None]
    if missing:
        raise MissingExtraError(
            f"--output needs {' and '.join(missing)}", "pip install 'claude-ccache[simulator,charts]'"
        )


_LIBRARIES = (("altair", "altair"), ("vl_convert", "vl-convert-python"))


def write_chart(grown: "list[GrowthStep]", path: Path) -> None:
    import altair

    rows = [{"tokens": step.cache_length, "KiB": step.cache_bytes / 1024} for step in grown]
    data = altair.Data(values=rows)
    chart = (
        altair.Chart(data, title="K/V cache while an answer grows")
        .mark_line(point=len(rows) <= 80)
        .encode(
            x=altair.X("tokens:Q", title="tokens in the cache", scale=altair.Scale(zero=False, nice=False)),
            y=altair.Y("KiB:Q", title="KiB of keys and values"),
        )
        .properties(width=560, height=300)
    )
    chart.save(str(path), format=path.suffix[1:].lower(), **({"ppi": 144} if path.suffix.lower() == ".png" else {}))
