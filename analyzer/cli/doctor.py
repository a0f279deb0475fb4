"""`ccache doctor`: what was found and what may be missing."""

import os
from pathlib import Path

from analyzer.cli import options


def doctor(
    db: options.DbOption = None, format: options.FormatOption = "terminal", json: options.JsonOption = False
) -> None:
    """Roots found, transcripts, retention setting, database and price source."""
    import msgspec

    from analyzer import discovery
    from analyzer.cli.sql import print_rows
    from analyzer.prices import price_source

    rows: list[tuple[object, ...]] = []
    roots = discovery.default_roots(os.environ, Path.home())
    for root in roots:
        found, unreadable = discovery.find_transcripts([str(root)])
        size = sum(file.size for file in found)
        rows.append(("root", f"{root}: {len(found)} transcripts, {size / 1e6:,.1f} MB, {len(unreadable)} unreadable"))
        try:
            settings = msgspec.json.decode((root / "settings.json").read_bytes())
            days = settings.get("cleanupPeriodDays", 30) if isinstance(settings, dict) else 30
        except (OSError, msgspec.MsgspecError):
            days = 30
        rows.append(
            ("retention", f"Claude Code deletes transcripts of {root} after {days} days; the database keeps requests")
        )
    if not roots:
        rows.append(("root", "none found; set CLAUDE_CONFIG_DIR or give a PATH"))
    target = db or options.default_database()
    state = f"{os.path.getsize(target) / 1e6:,.1f} MB" if os.path.exists(target) else "not created yet"
    rows.append(("database", f"{target}: {state}"))
    rows.append(("prices", "{}, as of {}".format(*price_source())))
    rows.append(("network", "never used"))
    print_rows(["check", "finding"], rows, "json" if json else format)
