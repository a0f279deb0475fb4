"""The log predicted one step ahead: what each request should read, from the log before it, beside what it read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import duckdb

from analyzer.prices import PriceTable
from analyzer.queries import Scope
from analyzer.queries.history import Chain, LoggedRequest, is_loss, read_chains
from analyzer.queries.rebuilds import judged
from analyzer.queries.scope import select
from analyzer.whatif.prediction import Prediction, Predictor, tolerance
from analyzer.whatif.results import CauseScore, Checked, CheckReport, Score, Unforeseen


def check(connection: duckdb.DuckDBPyConnection, scope: Scope, prices: PriceTable | None = None) -> CheckReport:
    """Every request in scope that has a predecessor in its chain, in order of its start."""
    select(connection, scope, prices)
    shown = {row[0] for row in connection.execute("SELECT request_key FROM shown").fetchall()}
    causes = {rebuild.message_id: rebuild.cause for rebuild in judged(connection)}
    return scored(checked(read_chains(connection), shown), causes)


def checked(history: Sequence[Chain], shown: Collection[str]) -> list[Checked]:
    """Predict each request of `history` when it starts; learn from each when it is answered."""
    wrote = {number for number, chain in enumerate(history) if any(r.usage.cache_creation_tokens for r in chain)}
    predictor = Predictor()
    predicted: dict[tuple[int, int], Prediction] = {}
    found = []
    for answered, number, place in _in_order(history):
        row = history[number][place]
        previous = history[number][place - 1] if place else None
        if answered:
            guess = predicted.pop((number, place), None)
            predictor.learn(row.chain, previous, row, guess.reason if guess else "first")
            continue
        if previous is None:
            continue
        guess = predictor.predict(row.chain, previous, row.known)
        predicted[number, place] = guess
        if row.native and number in wrote and row.key in shown:
            found.append(_compared(previous, row, guess))
    return found


def _in_order(history: Sequence[Chain]) -> Iterator[tuple[bool, int, int]]:
    """(answered, chain, place): the start and the answer of every request by time, never against a chain's order."""
    moments: list[tuple[float, int, int, bool]] = []
    for number, chain in enumerate(history):
        latest = float("-inf")
        for place, row in enumerate(chain):
            latest = max(latest, row.known.started_at_s)
            moments.append((latest, number, place, False))
            latest = max(latest, row.response_began_at_s)
            if place + 1 < len(chain):
                latest = min(latest, max(row.known.started_at_s, chain[place + 1].known.started_at_s))
            moments.append((latest, number, place, True))
    return ((answered, number, place) for _, number, place, answered in sorted(moments))


def _compared(previous: LoggedRequest, row: LoggedRequest, guess: Prediction) -> Checked:
    readable, read = previous.readable_tokens, row.usage.cache_read_tokens
    return Checked(
        message_id=row.message_id,
        session_id=row.known.session_id,
        readable_tokens=readable,
        logged_read_tokens=read,
        predicted_read_tokens=guess.tokens,
        agrees=abs(read - guess.tokens) <= tolerance(readable),
        is_miss=is_loss(readable, read),
        predicted_miss=is_loss(readable, guess.tokens),
        expected=row.known.boundary,
        reason=guess.reason,
    )


def scored(rows: Sequence[Checked], causes: Mapping[str | None, str]) -> CheckReport:
    """`causes`: message id -> what the miss report says of it."""
    unforeseen: dict[str, list[int]] = {}
    for row in rows:
        if row.is_miss and not row.predicted_miss:
            lost = row.readable_tokens - row.logged_read_tokens
            unforeseen.setdefault(causes.get(row.message_id, "unknown"), []).append(lost)
    reasons: dict[str, list[Checked]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row)
    return CheckReport(
        score=_score(rows),
        without_expected=_score([row for row in rows if not row.expected]),
        by_reason=tuple(
            CauseScore(
                reason=reason,
                requests=len(found),
                agreed=sum(row.agrees for row in found),
                misses_called=sum(row.predicted_miss and row.is_miss for row in found),
                false_alarms=sum(row.predicted_miss and not row.is_miss for row in found),
                misses_overlooked=sum(row.is_miss and not row.predicted_miss for row in found),
            )
            for reason, found in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
        unforeseen=tuple(
            Unforeseen(cause, len(lost), sum(lost))
            for cause, lost in sorted(unforeseen.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
        rows=tuple(rows),
    )


def _score(rows: Sequence[Checked]) -> Score:
    called = sum(row.predicted_miss for row in rows)
    missed = sum(row.is_miss for row in rows)
    right = sum(row.predicted_miss and row.is_miss for row in rows)
    return Score(
        requests=len(rows),
        agreement=_rate(row.agrees for row in rows),
        miss_precision=right / called if called else None,
        miss_recall=right / missed if missed else None,
    )


def _rate(flags: Iterable[bool]) -> float | None:
    told = list(flags)
    return sum(told) / len(told) if told else None
