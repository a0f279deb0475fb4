-- grain: one row per sighting (request x file x rank) of the files in scope, with its request_key
WITH scoped AS (
    SELECT s.* REPLACE (
            coalesce(least(s.started_at, s.first_line_at), s.first_line_at) AS started_at,
            coalesce(s.last_line_at, s.first_line_at) AS last_line_at
        ),
        f.path, f.relative_path, f.first_timestamp, f.first_cwd, f.stem, f.is_agent_file
    FROM sightings s JOIN files f USING (file_id)
    WHERE getvariable('scope_all') OR f.file_id IN (SELECT unnest(getvariable('scope_files')::BIGINT[]))
),
-- a non-API id without requestId joins the request that the same session shows with one
with_request AS (
    SELECT message_id, session_id, min(request_id) AS joined_request_id
    FROM scoped
    WHERE message_id IS NOT NULL AND NOT starts_with(message_id, 'msg_') AND request_id IS NOT NULL
    GROUP BY ALL
)
SELECT scoped.*,
    CASE
        WHEN scoped.message_id IS NULL THEN 'uuid:' || coalesce(uuid, file_id::VARCHAR || ':' || ordinal::VARCHAR)
        WHEN starts_with(scoped.message_id, 'msg_') THEN scoped.message_id
        WHEN coalesce(request_id, joined_request_id) IS NOT NULL
            THEN scoped.message_id || '|r|' || coalesce(request_id, joined_request_id)
        ELSE scoped.message_id || '|s|' || scoped.session_id
    END AS request_key
FROM scoped LEFT JOIN with_request
    ON scoped.message_id = with_request.message_id AND scoped.session_id = with_request.session_id
