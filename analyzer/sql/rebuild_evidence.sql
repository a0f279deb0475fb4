-- grain: one row per rebuild, with its request, its predecessor and the events that stand between them
WITH numbered AS (
    SELECT file_id, chain, ordinal,
        row_number() OVER (PARTITION BY file_id, chain ORDER BY ordinal) - 1 AS n_in_chain,
        read_tokens = lag(read_tokens) OVER w AND read_tokens = lag(read_tokens, 2) OVER w AS read_is_pinned
    FROM chains WINDOW w AS (PARTITION BY file_id, chain ORDER BY ordinal)
)
SELECT b.*, n.n_in_chain, coalesce(n.read_is_pinned, false) AS read_is_pinned,
    f.path, r.session_id, r.project, r.message_id, r.uuid, r.first_line_at AS "at", r.diagnostics, r.version,
    p.version AS previous_version, p.model AS previous_model, r.speed, p.speed AS previous_speed, r.effort,
    p.effort AS previous_effort, r.cwd, p.cwd AS previous_cwd, r.branch, p.branch AS previous_branch,
    p.tools AS previous_tools, r.agent_type,
    r.input + b.read_tokens + b.creation_tokens < b.readable_tokens AS context_shrank,
    list(struct_pack(kind := e.kind, detail := e.detail, uuid := e.uuid) ORDER BY e.ordinal)
        FILTER (e.kind IS NOT NULL) AS events
FROM rebuilds b
JOIN requests r USING (request_key)
JOIN requests p ON p.request_key = b.previous_key
JOIN files f ON f.file_id = b.file_id
JOIN numbered n ON n.file_id = b.file_id AND n.chain = b.chain AND n.ordinal = b.ordinal
LEFT JOIN events e ON e.file_id = b.file_id AND e.ordinal > b.previous_ordinal AND e.ordinal <= b.ordinal
    AND split_part(e.chain, '#', 1) = split_part(b.chain, '#', 1)
GROUP BY ALL
