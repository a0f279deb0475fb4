-- grain: one usage row with its cost in USD by billing class (DECIMAL); priced is false where no rate is known
SELECT u.*, r.priced, p.project, p.session_id, p.agent_type, p.day, p.version,
    r.input AS input_rate, r.cache_read AS cache_read_rate, r.cache_creation_5m AS creation_5m_rate,
    r.cache_creation_1h AS creation_1h_rate,
    (u.input_tokens::DECIMAL(15,0) * r.input)::DECIMAL(38,15) AS input_usd,
    (u.cache_read_tokens::DECIMAL(15,0) * r.cache_read)::DECIMAL(38,15) AS cache_read_usd,
    (u.cache_creation_5m_tokens::DECIMAL(15,0) * r.cache_creation_5m)::DECIMAL(38,15) AS creation_5m_usd,
    (u.cache_creation_1h_tokens::DECIMAL(15,0) * r.cache_creation_1h)::DECIMAL(38,15) AS creation_1h_usd,
    (u.output_tokens::DECIMAL(15,0) * r.output)::DECIMAL(38,15) AS output_usd,
    (u.web_searches::DECIMAL(15,0) * r.web_search)::DECIMAL(38,15) AS web_search_usd,
    ((u.input_tokens + u.cache_read_tokens + u.cache_creation_5m_tokens + u.cache_creation_1h_tokens)::DECIMAL(15,0)
        * r.input)::DECIMAL(38,15) AS uncached_prompt_usd
FROM usage_rows u
JOIN requests p USING (request_key)
LEFT JOIN rates r ON r.model = u.model AND r.hour = date_trunc('hour', u.first_line_at)::TIMESTAMP
    AND r.band = CASE
        WHEN u.input_tokens + u.cache_read_tokens + u.cache_creation_5m_tokens + u.cache_creation_1h_tokens <= 100000 THEN 0
        WHEN u.input_tokens + u.cache_read_tokens + u.cache_creation_5m_tokens + u.cache_creation_1h_tokens <= 200000 THEN 1
        ELSE 2 END
    AND r.speed IS NOT DISTINCT FROM u.speed AND r.inference_geo IS NOT DISTINCT FROM u.inference_geo
    AND r.service_tier IS NOT DISTINCT FROM u.service_tier
