"""Measure inferred causes against the API's own diagnosis, with diagnostics hidden from the inference.

Usage: python tests/bench/cause_accuracy.py FOLDER
Prints the confusion table, n, the agreement and its 95 % Wilson interval. A miss counts where the log holds a definite
diagnosis (anything but `unavailable` or null).
"""

import math
import sys
from collections import Counter

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope, misses

AGREES = {
    "ttl_expired_5m": {"previous_message_not_found"},
    "ttl_expired_1h": {"previous_message_not_found"},
    "model_changed": {"model_changed"},
    "fast_mode_changed": {"system_changed"},
    "effort_changed": {"messages_changed"},
    "tools_changed": {"tools_changed"},
    "deferred_tool_loaded": {"tools_changed"},
    "mcp_changed": {"tools_changed", "system_changed"},
    "system_prompt_changed": {"system_changed"},
    "version_changed": {"system_changed", "tools_changed"},
    "resumed": {"system_changed", "messages_changed", "tools_changed"},
    "directory_changed": {"system_changed"},
    "messages_rewritten": {"messages_changed"},
    "rewind_or_branch": {"messages_changed"},
    "interrupted": {"messages_changed"},
    "skill_loaded": {"tools_changed", "messages_changed"},
    "hook_context": {"messages_changed"},
    "floor_pinned": {"messages_changed"},
    "likely_server_side": {"previous_message_not_found"},
}
DEFINITE = {"model_changed", "system_changed", "tools_changed", "messages_changed", "previous_message_not_found"}


def main() -> None:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts(sys.argv[1:])
        ingest(connection, found, unreadable)
        report = misses(connection, Scope(), ignore_diagnostics=True)
    judged = [miss for miss in report.misses if miss.diagnosis in DEFINITE]
    table = Counter((miss.cause, str(miss.diagnosis)) for miss in judged)
    for (cause, diagnosis), count in sorted(table.items()):
        mark = "agrees" if diagnosis in AGREES.get(cause, ()) else "differs"
        print(f"{cause:22} {diagnosis:28} {count:4} {mark}")
    n = len(judged)
    right = sum(count for (cause, diagnosis), count in table.items() if diagnosis in AGREES.get(cause, ()))
    if n:
        rate, z = right / n, 1.96
        centre, spread = rate + z * z / (2 * n), z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
        low, high = (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)
        print(f"n = {n}, agreement {rate:.1%} (95 % interval {low:.1%} to {high:.1%})")
    lost = sum(miss.lost_tokens for miss in report.misses)
    unknown = sum(miss.lost_tokens for miss in report.misses if miss.cause == "unknown")
    print(f"{len(report.misses)} misses; unknown: {unknown / lost:.1%} of the lost tokens" if lost else "no misses")


if __name__ == "__main__":
    main()
