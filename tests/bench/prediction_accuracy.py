"""How well the cache's rules predict a log, one step ahead.

Usage: python tests/bench/prediction_accuracy.py FOLDER
Prints agreement, precision and recall on misses with and without expected rebuilds, and the table by rule, as Markdown.
"""

import sys

from analyzer import database, discovery
from analyzer.ingest import ingest
from analyzer.queries import Scope
from analyzer.report.whatif_check import check_markdown
from analyzer.whatif.check import check


def main() -> None:
    with database.connect(":memory:") as connection:
        found, unreadable = discovery.find_transcripts(sys.argv[1:])
        ingest(connection, found, unreadable)
        report = check(connection, Scope())
    print(check_markdown(report), end="")
    score = report.score
    print(
        f"\n{len(found):,} transcripts, n = {score.requests:,}: agreement {score.agreement or 0:.2%},"
        f" precision {score.miss_precision or 0:.1%}, recall {score.miss_recall or 0:.1%}"
    )


if __name__ == "__main__":
    main()
