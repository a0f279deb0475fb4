"""What was computed for the whole database stays in it: a later run computes only what depends on changed files.

Everything that one file's requests depend on lies in files that share a request, a session or an agent with it,
directly or through others. Such a group is computed by the same views as the whole, pointed at its files.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC
from hashlib import blake2b
from typing import Any

import duckdb

from analyzer import __version__
from analyzer.database import VIEWS, drop, in_little_memory, materialize, replace, transaction, view_text
from analyzer.prices import BAND_SAMPLE, PriceTable, price_signature, rates_for

RELATIONS = (
    "requests",
    "priced_rows",
    "chains",
    "request_gaps",
    "rebuilds",
    "rebuild_evidence",
    "zero_requests",
)
KEPT = tuple(name for name in RELATIONS if name != "chains")  # most columns of which its neighbours hold too
_DAY = "(timezone(getvariable('timezone'), timezone('UTC', first_line_at)))::DATE AS day"
_WITH_DAY = ("requests", "priced_rows")


def point_at(connection: duckdb.DuckDBPyConnection, file_ids: Sequence[int] | None) -> None:
    """Let the views read these files only, or all (None)."""
    connection.execute("SET VARIABLE scope_all = ?", [file_ids is None])
    connection.execute("SET VARIABLE scope_files = ?::BIGINT[]", [list(file_ids or ())])


def compute(connection: duckdb.DuckDBPyConnection, prices: PriceTable | None, known_rates: bool = False) -> None:
    """Compute every relation for the files that the views point at, as session tables."""
    for name in _priced_in_order(connection, prices, known_rates):
        materialize(connection, (name,))


def _priced_in_order(
    connection: duckdb.DuckDBPyConnection, prices: PriceTable | None, known_rates: bool
) -> Iterator[str]:
    """The relations, each after those it is made of; the rates stand before the first that needs them."""
    replace(connection, "VIEW", "request_keys", view_text("request_keys"))
    for name in RELATIONS:
        if name == "priced_rows":
            replace(connection, "VIEW", "usage_rows", view_text("usage_rows"))
            _fill_rates(connection, prices, known_rates)
        yield name


def refresh(connection: duckdb.DuckDBPyConnection, file_ids: Sequence[int] | None) -> bool:
    """Bring the kept tables up to date and let the views read what they hold of these files (None: all).

    False where that would be something else than computing these files alone, because others share a request, a
    session or an agent with them.
    """
    signature = _signature()
    kept = connection.execute("SELECT signature FROM kept_signature").fetchone()
    whole = kept is None or kept[0] != signature
    changed = [] if whole else connection.execute("SELECT DISTINCT file_id FROM stale_files").fetchall()
    if whole:
        point_at(connection, None)
        in_little_memory(connection, lambda: _keep_all(connection, signature))
    elif changed:
        with transaction(connection):
            group = _group(connection, [row[0] for row in changed])
            point_at(connection, group)
            compute(connection, None, known_rates=True)
            _keep(connection, group)
            connection.execute("DELETE FROM stale_files")
    point_at(connection, file_ids)
    for name in ("usage_rows", *RELATIONS):
        drop(connection, name)
    if file_ids is not None and len(_group(connection, list(file_ids))) > len(set(file_ids)):
        return False
    for name in KEPT:
        _read_kept(connection, name, file_ids is not None)
    return True


def _signature() -> str:
    """Changes with the views, the prices and the program."""
    texts = (*(view_text(name) for name in VIEWS), price_signature(), __version__)
    return blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _columns(name: str) -> str:
    """The day depends on the zone asked for, so it is not kept."""
    return "* EXCLUDE (day)" if name in _WITH_DAY else "*"


def _read_kept(connection: duckdb.DuckDBPyConnection, name: str, scoped: bool = False) -> None:
    day = f", {_DAY}" if name in _WITH_DAY else ""
    chosen = "file_id IN (SELECT unnest(getvariable('scope_files')::BIGINT[]))"
    if name == "priced_rows":
        chosen = f"request_key IN (SELECT request_key FROM kept_requests WHERE {chosen})"
    replace(connection, "VIEW", name, f"SELECT *{day} FROM kept_{name}" + (f" WHERE {chosen}" if scoped else ""))


def _keep_all(connection: duckdb.DuckDBPyConnection, signature: str) -> None:
    """Every table for itself, so that memory holds one of them at a time; without the signature none of them counts."""
    connection.execute("DELETE FROM kept_signature")
    for name in _priced_in_order(connection, None, False):
        if name not in KEPT:
            materialize(connection, (name,))
            continue
        connection.execute(
            f"CREATE OR REPLACE TABLE kept_{name} AS SELECT {_columns(name)} FROM (\n{view_text(name)}\n)"
        )
        _read_kept(connection, name)
    connection.execute("CREATE OR REPLACE TABLE kept_rates AS SELECT * FROM rates")
    with transaction(connection):
        connection.execute("DELETE FROM stale_files")
        connection.execute("INSERT INTO kept_signature VALUES (?)", [signature])


def _keep(connection: duckdb.DuckDBPyConnection, group: Sequence[int]) -> None:
    chosen = "file_id IN (SELECT unnest(?::BIGINT[]))"
    connection.execute(
        f"DELETE FROM kept_priced_rows WHERE request_key IN (SELECT request_key FROM kept_requests WHERE {chosen})",
        [list(group)],
    )
    for name in KEPT:
        if name != "priced_rows":
            connection.execute(f"DELETE FROM kept_{name} WHERE {chosen}", [list(group)])
        connection.execute(f"INSERT INTO kept_{name} BY NAME SELECT {_columns(name)} FROM {name}")


def _group(connection: duckdb.DuckDBPyConnection, file_ids: list[int]) -> list[int]:
    """The files that share a request, a session or an agent with these, directly or through others."""
    while True:
        more = connection.execute(
            """WITH own AS (SELECT unnest(?::BIGINT[]) AS file_id),
            own_sightings AS (SELECT * FROM sightings SEMI JOIN own USING (file_id)),
            sessions AS (
                SELECT session_id FROM own_sightings
                UNION SELECT stem FROM files SEMI JOIN own USING (file_id)
            ),
            named_agents AS (
                SELECT agent_id FROM own_sightings WHERE agent_id IS NOT NULL
                UNION SELECT agent_id FROM agents SEMI JOIN own USING (file_id)
                UNION SELECT split_part(chain, '#', 1) FROM own_sightings WHERE starts_with(chain, 'side:')
            )
            SELECT file_id FROM sightings SEMI JOIN own_sightings USING (message_id)
            UNION SELECT file_id FROM sightings s SEMI JOIN own_sightings o
                ON s.message_id IS NULL AND o.message_id IS NULL AND s.uuid = o.uuid
            UNION SELECT file_id FROM sightings SEMI JOIN sessions USING (session_id)
            UNION SELECT file_id FROM files SEMI JOIN sessions ON files.stem = sessions.session_id
            UNION SELECT file_id FROM sightings SEMI JOIN named_agents USING (agent_id)
            UNION SELECT file_id FROM sightings s SEMI JOIN named_agents a
                ON starts_with(s.chain, 'side:') AND split_part(s.chain, '#', 1) = a.agent_id
            UNION SELECT file_id FROM agents SEMI JOIN named_agents USING (agent_id)
            UNION SELECT file_id FROM own""",
            [file_ids],
        ).fetchall()
        if len(more) == len(file_ids):
            return file_ids
        file_ids = [row[0] for row in more]


def _fill_rates(connection: duckdb.DuckDBPyConnection, prices: PriceTable | None, known: bool) -> None:
    """Give every (model, hour, prompt band, speed, geography, tier) of the usage rows its rates."""
    connection.execute("DELETE FROM rates")
    if known:
        connection.execute("INSERT INTO rates SELECT * FROM kept_rates")
    prompt = "input_tokens + cache_read_tokens + cache_creation_5m_tokens + cache_creation_1h_tokens"
    wanted = connection.execute(
        f"""SELECT DISTINCT model, date_trunc('hour', first_line_at)::TIMESTAMP, CASE WHEN {prompt} <= 100000 THEN 0
            WHEN {prompt} <= 200000 THEN 1 ELSE 2 END, speed, inference_geo, service_tier FROM usage_rows
        EXCEPT SELECT model, hour, band, speed, inference_geo, service_tier FROM rates"""
    ).fetchall()
    if not wanted:
        return
    columns: list[list[Any]] = [[] for _ in range(13)]
    for model, hour, band, speed, geo, tier in wanted:
        rates = rates_for(
            model,
            hour.replace(tzinfo=UTC),
            prompt_tokens=BAND_SAMPLE[band],
            speed=speed,
            inference_geo=geo,
            service_tier=tier,
            overrides=prices,
        )
        classes: list[str | None] = [None] * 6
        if rates is not None:
            per_mtok = (rates.input, rates.cache_read, rates.cache_creation_5m, rates.cache_creation_1h, rates.output)
            classes = [*(f"{rate / 1_000_000:f}" for rate in per_mtok), f"{rates.web_search_usd:f}"]
        row = (model, hour, band, speed, geo, tier, rates is not None, *classes)
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    types = ("VARCHAR", "TIMESTAMP", "TINYINT", "VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN", *["VARCHAR"] * 6)
    values = ", ".join(f"unnest(?::{name}[])" for name in types)
    connection.execute(f"INSERT INTO rates SELECT {values}", columns)
    if known:
        connection.execute(f"INSERT INTO kept_rates SELECT {values}", columns)
