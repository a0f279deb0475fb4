-- grain: one row per native request that has a predecessor in its chain: gap, TTL of the last write, readable, lost
WITH ordered AS (
    SELECT *,
        lag(request_key) OVER w AS previous_key, lag(started_at) OVER w AS previous_started_at,
        lag(date_estimated) OVER w AS previous_estimated, lag(ordinal) OVER w AS previous_ordinal,
        lag(own_message_id) OVER w AS previous_message_id,
        lag(read_tokens + creation_tokens) OVER w AS readable_tokens,
        last_value(CASE WHEN creation_1h_tokens > 0 THEN 3600 WHEN creation_5m_tokens > 0 THEN 300 END IGNORE NULLS)
            OVER (PARTITION BY file_id, chain ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS ttl_s,
        max(creation_tokens) OVER (PARTITION BY file_id, chain) > 0 AS chain_wrote
    FROM chains
    WINDOW w AS (PARTITION BY file_id, chain ORDER BY ordinal)
)
SELECT *,
    CASE WHEN NOT date_estimated AND NOT previous_estimated 
        THEN round(epoch(started_at) - epoch(previous_started_at), 6) END AS gap_s,
    greatest(0, readable_tokens - read_tokens) AS lost_tokens,
    least(greatest(0, readable_tokens - read_tokens), creation_tokens) AS rewritten_tokens
FROM ordered
WHERE previous_key IS NOT NULL AND is_native AND chain_wrote
