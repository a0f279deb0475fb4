-- grain: one row per request whose five token classes are all zero: counted, and in no other figure
SELECT request_key, min(file_id) AS file_id
FROM request_keys ANTI JOIN requests USING (request_key)
GROUP BY request_key
