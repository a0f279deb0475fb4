"""Measure inferred causes against the API's own diagnosis, with diagnostics hidden from the inference.

Usage: python tests/bench/cause_accuracy.py FOLDER
Prints the confusion table as Markdown, n, the agreement and its 95 % Wilson interval. A miss counts where the log holds
a definite diagnosis (anything but `unavailable` or null). The table of the README is this output.
"""

import math
import sys
from collections import Counter

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope, misses
from analyzer.signatures import version_order

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
        told = misses(connection, Scope())
    judged = [miss for miss in report.misses if miss.diagnosis in DEFINITE]
    table = Counter((miss.cause, str(miss.diagnosis)) for miss in judged)
    print("| inferred cause | the API said | misses | |\n|---|---|---|---|")
    for (cause, diagnosis), count in sorted(table.items(), key=lambda item: (-item[1], item[0])):
        print(f"| {cause} | {diagnosis} | {count} | {'agrees' if diagnosis in AGREES.get(cause, ()) else 'differs'} |")
    right = sum(count for (cause, diagnosis), count in table.items() if diagnosis in AGREES.get(cause, ()))
    print(
        f"\n{len(found):,} transcripts, {len(report.misses):,} misses, n = {len(judged)} with a definite diagnosis: ",
        end="",
    )
    print(f"agreement {share(right, len(judged))}")
    timed = [count for (cause, diagnosis), count in table.items()
             if cause.startswith("ttl_expired") and diagnosis not in AGREES[cause]]  # fmt: skip
    print(f"ttl_expired_* wrong: {sum(timed)}")
    for name, rows in (("with diagnostics", told.misses), ("inferred only", report.misses)):
        lost = sum(miss.lost_tokens for miss in rows)
        unknown = sum(miss.lost_tokens for miss in rows if miss.cause == "unknown")
        old = [miss for miss in rows if version_order(miss.version or "0") < version_order("2.1.119")]
        old_lost = sum(miss.lost_tokens for miss in old)
        old_unknown = sum(miss.lost_tokens for miss in old if miss.cause == "unknown")
        print(
            f"unknown, {name}: {unknown / max(1, lost):.1%} of the lost tokens,"
            f" {old_unknown / max(1, old_lost):.1%} before 2.1.119"
        )


def share(right: int, n: int) -> str:
    """A proportion with its 95 % Wilson interval."""
    if not n:
        return "not measured"
    rate, z = right / n, 1.96
    centre, spread = rate + z * z / (2 * n), z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low, high = (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)
    return f"{rate:.1%} (95 % interval {low:.1%} to {high:.1%})"


if __name__ == "__main__":
    main()
