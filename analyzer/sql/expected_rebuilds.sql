-- grain: one row per expected rebuild: the first request after a compaction or tool clearing
SELECT * EXCLUDE (expected) FROM rebuilds WHERE expected
