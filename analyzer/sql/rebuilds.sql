-- grain: one row per rebuild (lost >= 2,000 and > 5 % of readable); expected when a boundary stands between the two
SELECT g.*,
    EXISTS (
        SELECT 1 FROM events e
        WHERE e.file_id = g.file_id AND e.ordinal > g.previous_ordinal AND e.ordinal <= g.ordinal
            AND split_part(e.chain, '#', 1) = split_part(g.chain, '#', 1)
            AND (
                e.kind IN ('compact_boundary', 'microcompact_boundary', 'compact_summary', 'context_edit')
                OR (e.kind = 'session_start' AND e.detail = 'clear')
            )
    ) AS expected
FROM request_gaps g
WHERE lost_tokens >= 2000 AND lost_tokens * 20 > readable_tokens
