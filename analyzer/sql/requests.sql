-- grain: one row per request (API call) in scope; fields are maxima over its lines, the rest is its owner's
WITH repeated AS (SELECT request_key FROM request_keys GROUP BY request_key HAVING count(*) > 1),
several AS (SELECT * FROM request_keys SEMI JOIN repeated USING (request_key)),
merged AS (
    SELECT request_key, count(DISTINCT file_id) AS files, sum(lines)::BIGINT AS lines, max(input) AS input,
        max(cache_read) AS cache_read, max(output) AS output, max(creation_flat) AS creation_flat,
        max(creation_5m) AS creation_5m, max(creation_1h) AS creation_1h, max(web_searches) AS web_searches,
        max(stop_reason) AS stop_reason, bool_or(has_split) AS has_split, max(speed) AS speed,
        max(service_tier) AS service_tier, max(inference_geo) AS inference_geo, max(diagnostics) AS diagnostics
    FROM several GROUP BY request_key
),
-- one order of the sightings decides all that differs between them
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY request_key ORDER BY "rank", first_line_at,
            coalesce(first_timestamp, first_line_at), relative_path, path, ordinal) AS place
    FROM several
),
passes AS (
    SELECT request_key, iterations FROM ranked
    QUALIFY row_number() OVER (
        PARTITION BY request_key ORDER BY iterations_output DESC, iterations IS NULL, place) = 1
),
owned AS (
    SELECT *, 1 AS files FROM request_keys ANTI JOIN repeated USING (request_key)
    UNION ALL BY NAME
    SELECT r.* EXCLUDE (place) REPLACE (passes.iterations AS iterations, m.lines AS lines, m.input AS input,
            m.cache_read AS cache_read, m.output AS output, m.creation_flat AS creation_flat,
            m.creation_5m AS creation_5m, m.creation_1h AS creation_1h, m.web_searches AS web_searches,
            m.stop_reason AS stop_reason, m.has_split AS has_split, m.speed AS speed, m.service_tier AS service_tier,
            m.inference_geo AS inference_geo, m.diagnostics AS diagnostics), m.files
    FROM ranked r JOIN merged m USING (request_key) LEFT JOIN passes USING (request_key)
    WHERE r.place = 1
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
    SELECT o.request_key, o.files, o.lines, o.input, o.cache_read, o.output AS output_tokens, o.creation_1h,
        o.creation_5m + greatest(0, o.creation_flat - o.creation_5m - o.creation_1h) AS creation_5m, o.web_searches,
        o.stop_reason, o.has_split, o.speed, o.service_tier, o.inference_geo, o.diagnostics, o.iterations, o.file_id,
        o.ordinal, o."rank", o.chain, o.message_id, o.session_id,
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
        list_filter(o.iterations, lambda e: e.kind IN ('message', 'fallback_message'))[-1] AS context
    FROM owned o
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
