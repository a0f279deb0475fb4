-- grain: one row per request and model entry: the request itself, or each of its iterations by its own model
SELECT request_key, 0 AS entry, true AS counts_request, model, input AS input_tokens, cache_read AS cache_read_tokens,
    creation_5m AS cache_creation_5m_tokens, creation_1h AS cache_creation_1h_tokens, output_tokens, web_searches,
    first_line_at, speed, service_tier, inference_geo
FROM requests WHERE iterations IS NULL
UNION ALL
SELECT request_key, entry, entry = len(iterations) AS counts_request, e.model, e.input_tokens, e.cache_read_tokens,
    e.cache_creation_5m_tokens, e.cache_creation_1h_tokens, e.output_tokens,
    CASE WHEN entry = len(iterations) THEN web_searches ELSE 0 END, first_line_at, speed, service_tier, inference_geo
FROM (
    SELECT *, unnest(iterations) AS e, unnest(range(1, len(iterations) + 1)) AS entry
    FROM requests WHERE iterations IS NOT NULL
)
