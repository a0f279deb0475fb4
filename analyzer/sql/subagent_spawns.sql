-- grain: one row per subagent: the first request of its chain that is its own, and what its whole chain cost
WITH first_requests AS (
    SELECT r.*, r.context_5m_tokens + r.context_1h_tokens AS context_creation_tokens
    FROM requests r
    WHERE r.agent_id IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY r.session_id, r.agent_id ORDER BY r.started_at, r.ordinal, r.request_key) = 1
),
costs AS (
    SELECT p.session_id, r.agent_id, count(*) FILTER (p.counts_request) AS requests,
        max(p.first_line_at) AS last_line_at,
        sum(input_usd + cache_read_usd + creation_5m_usd + creation_1h_usd + output_usd + web_search_usd) AS cost_usd
    FROM priced_rows p JOIN requests r USING (request_key)
    WHERE r.agent_id IS NOT NULL GROUP BY ALL
),
-- what the first request did not find in the cache
starts AS (
    SELECT request_key, sum(input_usd + creation_5m_usd + creation_1h_usd) AS cold_start_usd
    FROM priced_rows SEMI JOIN first_requests USING (request_key) GROUP BY request_key
)
SELECT f.request_key, f.session_id, f.project, f.agent_id, f.agent_type, f.model, f.cwd, f.started_at, f.first_line_at,
    f.date_estimated, f.context_read_tokens AS first_read_tokens, f.context_creation_tokens AS first_creation_tokens,
    c.requests, c.cost_usd, c.last_line_at, t.cold_start_usd
FROM first_requests f
LEFT JOIN costs c USING (session_id, agent_id)
LEFT JOIN starts t USING (request_key)
