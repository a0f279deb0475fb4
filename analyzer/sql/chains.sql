-- grain: one row per sighting in its file's chain, in file order; is_native marks the one that owns its request
SELECT k.file_id, k.chain, k.ordinal, k.request_key, k.parent_message_id, k.message_id AS own_message_id,
    r.file_id = k.file_id AND r.ordinal = k.ordinal AND r."rank" = k."rank" AS is_native,
    k.started_at, k.first_line_at, k.date_estimated, r.model, r.context_read_tokens AS read_tokens,
    r.context_5m_tokens AS creation_5m_tokens, r.context_1h_tokens AS creation_1h_tokens,
    r.context_5m_tokens + r.context_1h_tokens AS creation_tokens
FROM request_keys k JOIN requests r USING (request_key)
