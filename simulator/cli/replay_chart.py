"""The chart of a replay as a file, by altair and vl-convert from the extra `charts`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.replay.results import Replay


def write_chart(replays: Sequence[Replay], path: Path) -> None:
    """Two panels per replay over its requests: prefill time with and without the cache, and the share of the prompt
    that was read (as logged, as predicted, as reused by the engine)."""
    import altair

    panels: list[Any] = []
    for replay in replays:
        times = [
            {"request": number, "seconds": seconds, "prefill": name}
            for number, row in enumerate(replay.requests, 1)
            for name, seconds in (("with the cache", row.prefill_s), ("without", row.prefill_uncached_s))
        ]
        shares = [
            {"request": number, "share": part / whole, "read by": name}
            for number, row in enumerate(replay.requests, 1)
            for name, part, whole in (
                ("log", None if row.logged is None else row.logged.cache_read_tokens, row.prompt_tokens),
                ("policy", row.policy.cache_read_tokens, row.prompt_tokens),
                ("engine", row.reused_tokens, row.reused_tokens + row.computed_tokens),
            )
            if part is not None and whole
        ]
        title = f"policy {replay.policy}, 1 model token for {replay.scale:.2f} real ones"
        panels.append(_panel(altair, times, "seconds", "prefill seconds", "prefill", title))
        panels.append(_panel(altair, shares, "share", "share of the prompt read", "read by", ""))
    chart = altair.vconcat(*panels).resolve_scale(color="independent")
    save(chart, path)


def save(chart: Any, path: Path) -> None:
    """As .png at twice the screen's resolution, or as .svg."""
    kind = path.suffix[1:].lower()
    chart.save(str(path), format=kind, **({"ppi": 144} if kind == "png" else {}))


def _panel(altair: Any, rows: list[dict[str, Any]], value: str, label: str, series: str, title: str) -> Any:
    return (
        altair.Chart(altair.Data(values=rows), title=title)
        .mark_line(point=len(rows) <= 240, interpolate="step-after" if len(rows) > 240 else "linear")
        .encode(
            x=altair.X("request:Q", title="request", axis=altair.Axis(tickMinStep=1, format="d")),
            y=altair.Y(f"{value}:Q", title=label),
            color=altair.Color(f"{series}:N", title=series),
        )
        .properties(width=640, height=220)
    )
