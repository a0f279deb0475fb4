"""One function per question: database rows -> typed results. The only reader of the views."""

from analyzer.queries.free_sql import list_views, run_sql
from analyzer.queries.rebuilds import misses
from analyzer.queries.scope import Scope, open_scope, select
from analyzer.queries.session import session
from analyzer.queries.spawns import subagents
from analyzer.queries.totals import analyze

__all__ = ["Scope", "analyze", "list_views", "misses", "open_scope", "run_sql", "select", "session", "subagents"]
