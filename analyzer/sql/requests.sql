-- grain: one row per request (API call) in scope; fields are maxima over its lines, the rest is its owner's
WITH merged AS (
    SELECT request_key, count(*) AS sightings, count(DISTINCT file_id) AS files, sum(lines)::BIGINT AS lines,
        max(input) AS input, max(cache_read) AS cache_read, max(output) AS output_tokens,
        max(creation_1h) AS creation_1h,
        max(creation_5m) + greatest(0, max(creation_flat) - max(creation_5m) - max(creation_1h)) AS creation_5m,
        max(web_searches) AS web_searches, max(stop_reason) AS stop_reason, bool_or(has_split) AS has_split,
        max(speed) AS speed, max(service_tier) AS service_tier, max(inference_geo) AS inference_geo,
        max(diagnostics) AS diagnostics
    FROM request_keys GROUP BY request_key
),
-- one order of the sightings decides all that differs between them
ranked AS (
    SELECT k.request_key, k.file_id, k.ordinal, k."rank",
        row_number() OVER (PARTITION BY k.request_key ORDER BY k."rank", k.first_line_at,
            coalesce(k.first_timestamp, k.first_line_at), k.relative_path, k.path, k.ordinal) AS place
    FROM request_keys k JOIN merged USING (request_key) WHERE merged.sightings > 1
),
owners AS (
    SELECT k.* FROM request_keys k JOIN merged USING (request_key) WHERE merged.sightings = 1
    UNION ALL BY NAME
    SELECT k.* FROM request_keys k
    JOIN ranked r ON r.place = 1 AND r.request_key = k.request_key AND r.file_id = k.file_id AND r.ordinal = k.ordinal
        AND r."rank" = k."rank"
),
passes AS (
    SELECT k.request_key, k.iterations FROM request_keys k
    LEFT JOIN ranked r ON r.request_key = k.request_key AND r.file_id = k.file_id AND r.ordinal = k.ordinal
        AND r."rank" = k."rank"
    WHERE k.iterations IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY k.request_key ORDER BY k.iterations_output DESC, r.place) = 1
),
scoped_files AS (
    SELECT * FROM files
    WHERE getvariable('scope_all') OR file_id IN (SELECT unnest(getvariable('scope_files')::BIGINT[]))
),
agent_types AS (
    SELECT agent_id, arg_min(agent_type, (source, agent_type)) AS agent_type
    FROM agents WHERE file_id IN (SELECT file_id FROM scoped_files) GROUP BY agent_id
),
main_files AS (
    SELECT stem, min_by(first_cwd, (relative_path, path)) AS cwd
    FROM scoped_files WHERE NOT is_agent_file AND first_cwd IS NOT NULL GROUP BY stem
),
joined AS (
    SELECT m.* EXCLUDE (sightings), passes.iterations, o.file_id, o.ordinal, o."rank", o.chain, o.message_id, o.session_id,
        -- an inline sidechain has no agent id; its root stands for one
        coalesce(o.agent_id, CASE WHEN starts_with(o.chain, 'side:')
            THEN substr(split_part(o.chain, '#', 1), 6) END) AS agent_id,
        o.model, o.uuid,
        o.first_line_at, o.last_line_at, o.started_at, o.date_estimated, o.version, o.cwd, o.branch, o.effort, o.tools,
        coalesce(main_files.cwd, o.first_cwd, o.cwd, '(unknown)') AS project,
        CASE
            WHEN o.team IS NOT NULL THEN 'teammate'
            WHEN o.agent_id IS NOT NULL THEN coalesce(agent_types.agent_type, 'unknown')
            WHEN o.is_sidechain THEN coalesce(agent_types.agent_type, 'unknown')
            ELSE 'main'
        END AS agent_type,
        -- for chains, the context is what the last message entry saw
        list_filter(passes.iterations, lambda e: e.kind IN ('message', 'fallback_message'))[-1] AS context
    FROM merged m
    JOIN owners o USING (request_key)
    LEFT JOIN passes USING (request_key)
    LEFT JOIN agent_types ON agent_types.agent_id = coalesce(o.agent_id, split_part(o.chain, '#', 1))
    LEFT JOIN main_files ON o.session_id = main_files.stem
)
SELECT joined.* EXCLUDE (context),
    coalesce(context.cache_read_tokens, cache_read) AS context_read_tokens,
    coalesce(context.cache_creation_5m_tokens, creation_5m) AS context_5m_tokens,
    coalesce(context.cache_creation_1h_tokens, creation_1h) AS context_1h_tokens,
    (timezone(getvariable('timezone'), timezone('UTC', first_line_at)))::DATE AS day
FROM joined
WHERE input + cache_read + output_tokens + creation_5m + creation_1h > 0 OR iterations IS NOT NULL
