-- grain: one row per miss: a rebuild that no compaction explains
SELECT * EXCLUDE (expected) FROM rebuilds WHERE NOT expected
