"""`ccache doctor`: what was found, what may be missing, and what everything runs on."""

import os
import platform
from pathlib import Path
from typing import Any

from analyzer.cli import options


def doctor(
    db: options.DbOption = None, format: options.FormatOption = "terminal", json: options.JsonOption = False
) -> None:
    """Roots found, transcripts, retention setting, database, versions and price source."""
    from analyzer import discovery
    from analyzer.cli.sql import print_rows
    from analyzer.prices import price_source

    rows: list[tuple[str, str]] = []
    roots = discovery.default_roots(os.environ, Path.home())
    for root in roots:
        rows += _root(root)
    if not roots:
        rows.append(("root", "none found; set CLAUDE_CONFIG_DIR, or give the reports a PATH"))
    rows += _database(db or options.default_database())
    rows.append(("prices", "{}, as of {}".format(*price_source())))
    rows.append(("versions", _versions()))
    rows.append(("simulator", _simulator()))
    rows.append(("network", "never used by the analyzer"))
    print_rows(["check", "finding"], list[tuple[object, ...]](rows), "json" if json else format, "finding")


def _root(root: Path) -> list[tuple[str, str]]:
    from analyzer import discovery

    found, unreadable = discovery.find_transcripts([str(root)])
    size = sum(file.size for file in found) / 1e6
    rows = [("root", f"{root}: {len(found):,} transcripts, {size:,.1f} MB, {len(unreadable)} unreadable")]
    rows += [("unreadable", problem) for problem in unreadable[:5]]
    days = _retention(root / "settings.json")
    rows.append(("retention", f"Claude Code deletes these transcripts after {days} days; the database keeps requests"))
    return rows


def _retention(settings: Path) -> Any:
    """`cleanupPeriodDays`; 30 where it is not set (code.claude.com/docs/en/settings)."""
    import msgspec

    try:
        found = msgspec.json.decode(settings.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return 30
    return found.get("cleanupPeriodDays", 30) if isinstance(found, dict) else 30


def _database(target: str) -> list[tuple[str, str]]:
    import duckdb

    from analyzer import database
    from analyzer.errors import DatabaseError

    if not os.path.exists(target):
        return [("database", f"{target}: not created yet")]
    rows = [("database", f"{target}: {os.path.getsize(target) / 1e6:,.1f} MB")]
    try:
        connection = database.connect(target)
    except DatabaseError as error:
        return [*rows, ("database", f"cannot be used: {error}")]
    try:
        files, missing, broken = connection.execute(
            "SELECT count(*), count(*) FILTER (missing), coalesce(sum(broken_lines), 0)::BIGINT FROM files"
        ).fetchall()[0]
        rows.append(("holds", f"{files:,} transcripts, {missing:,} of them deleted since; {broken:,} broken lines"))
        versions = connection.execute(
            """SELECT version, count(*) FROM sightings WHERE version IS NOT NULL
            GROUP BY 1 ORDER BY max(first_line_at) DESC"""
        ).fetchall()
        if versions:
            listed = ", ".join(f"{version} ({count:,})" for version, count in versions[:5])
            more = f" and {len(versions) - 5} more" if len(versions) > 5 else ""
            rows.append(("Claude Code", f"requests by version, latest first: {listed}{more}"))
    except duckdb.Error as error:
        rows.append(("database", f"cannot be used: {database.failure(target, error)}"))
    finally:
        connection.close()
    return rows


def _versions() -> str:
    from importlib.metadata import version

    from analyzer import __version__

    return (
        f"claude-ccache {__version__}, Python {platform.python_version()}, duckdb {version('duckdb')},"
        f" genai-prices {version('genai-prices')}, {platform.system()} {platform.machine()}"
    )


def _simulator() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    except PackageNotFoundError:
        return "not installed (pip install 'claude-ccache[simulator]'); only `ccache simulate` needs it"
