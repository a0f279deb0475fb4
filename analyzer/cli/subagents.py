"""`ccache subagents`: do subagents share the main conversation's prefix?"""

from typing import Any

from analyzer.cli import options


@options.reports
def subagents(asked: options.Asked) -> None:
    """Whose cache each subagent's first request read, with the numbers that prove it."""
    from analyzer import queries
    from analyzer.cli.sql import print_rows
    from analyzer.report.formatting import clean_text, format_tokens, format_usd, plain_decimal

    with options.opened(asked) as (connection, scope, _):
        report = queries.subagents(connection, scope, asked.prices)
    if asked.format == "json":
        spawns: list[dict[str, Any]] = [
            {
                "session_id": clean_text(spawn.session_id),
                "agent_id": clean_text(spawn.agent_id),
                "agent_type": clean_text(spawn.agent_type),
                "model": clean_text(spawn.model),
                "started_at": spawn.started_at.isoformat().replace("+00:00", "Z"),
                "requests": spawn.requests,
                "first_read_tokens": spawn.first_read_tokens,
                "first_creation_tokens": spawn.first_creation_tokens,
                "verdict": spawn.verdict,
                "matched": {
                    "whose": spawn.whose,
                    "position_tokens": spawn.position_tokens,
                    "written_at": spawn.written_at and spawn.written_at.isoformat().replace("+00:00", "Z"),
                }
                if spawn.whose
                else None,
                "cost_usd": plain_decimal(spawn.cost_usd),
            }
            for spawn in report.spawns
        ]
        options.print_json({"verdict": report.sentence, "spawns": spawns})
        return
    names = ["started (UTC)", "type", "model", "first read", "first write", "verdict", "whose", "cost"]
    rows: list[tuple[object, ...]] = [
        (
            f"{spawn.started_at:%Y-%m-%d %H:%M}",
            spawn.agent_type,
            spawn.model,
            format_tokens(spawn.first_read_tokens) if asked.format == "terminal" else spawn.first_read_tokens,
            format_tokens(spawn.first_creation_tokens) if asked.format == "terminal" else spawn.first_creation_tokens,
            spawn.verdict,
            spawn.whose or "",
            format_usd(spawn.cost_usd) if asked.format == "terminal" else plain_decimal(spawn.cost_usd),
        )
        for spawn in report.spawns
    ]
    if asked.format != "csv":
        print(report.sentence)
    if rows:
        print_rows(names, rows, asked.format)
