"""Claude Code session logs -> DuckDB -> typed results -> reports."""

__version__ = "0.1.0"
