-- grain: one row per rebuild, with its request, its predecessor and the events that stand between them
WITH marked AS (
    SELECT file_id, chain, ordinal, read_tokens,
        read_tokens IS DISTINCT FROM lag(read_tokens) OVER w AS read_changed,
        row_number() OVER w - 1 AS n_in_chain
    FROM chains SEMI JOIN rebuilds USING (file_id, chain)
    WINDOW w AS (PARTITION BY file_id, chain ORDER BY ordinal)
),
-- a run is a stretch of a chain whose requests all read the same number of tokens
runs AS (
    SELECT *, count(*) FILTER (read_changed) OVER (PARTITION BY file_id, chain ORDER BY ordinal) AS run FROM marked
),
numbered AS (
    SELECT *, count(*) OVER (PARTITION BY file_id, chain, run) AS run_length FROM runs
)
SELECT b.*, n.n_in_chain, n.run_length, f.path, r.session_id, r.project, r.message_id, r.uuid, r.first_line_at AS "at",
    r.diagnostics, r.version, p.version AS previous_version, p.model AS previous_model, r.speed,
    p.speed AS previous_speed, r.effort, p.effort AS previous_effort, r.cwd, p.cwd AS previous_cwd, r.branch,
    p.branch AS previous_branch, k.entrypoint, q.entrypoint AS previous_entrypoint, k.after_prompt,
    p.tools AS previous_tools, r.agent_type,
    r.input + b.read_tokens + b.creation_tokens < b.readable_tokens AS context_shrank,
    list(struct_pack(kind := e.kind, detail := e.detail, ordinal := e.ordinal) ORDER BY e.ordinal, e.kind, e.detail)
        FILTER (e.kind IS NOT NULL) AS events
FROM rebuilds b
JOIN requests r USING (request_key)
JOIN requests p ON p.request_key = b.previous_key
JOIN files f ON f.file_id = b.file_id
JOIN numbered n ON n.file_id = b.file_id AND n.chain = b.chain AND n.ordinal = b.ordinal
JOIN sightings k ON k.file_id = b.file_id AND k.chain = b.chain AND k.ordinal = b.ordinal
JOIN sightings q ON q.file_id = b.file_id AND q.chain = b.chain AND q.ordinal = b.previous_ordinal
LEFT JOIN events e ON e.file_id = b.file_id AND e.ordinal > b.previous_ordinal AND e.ordinal <= b.ordinal
    AND split_part(e.chain, '#', 1) = split_part(b.chain, '#', 1)
GROUP BY ALL
