"""`simulate` against a slow twin that replays the whole history of touches for every question asked."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from simulator.policy import Policy, simulate
from simulator.trace import Request, Segment, Ttl, Usage

BASE = Policy({"big": 12}, 4, look_back=3)


@st.composite
def segment_lists(draw: st.DrawFn) -> tuple[Segment, ...]:
    keys = draw(st.lists(st.sampled_from("aab"), max_size=6))
    marked = draw(st.sets(st.integers(0, 5), max_size=4))
    hours = draw(st.integers(0, 6))
    sizes = {"a": (3, 1), "b": (5, 2)}
    return tuple(
        Segment(k, *sizes[k], ("1h" if i < hours else "5m") if i in marked else None) for i, k in enumerate(keys)
    )


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    trace: list[Request] = []
    for i in range(draw(st.integers(0, 8))):
        start = draw(st.sampled_from([0, 1, 200, 300, 301, 500, 601, 3600, 3700, 3901, 7300]))
        trace.append(
            Request(
                str(i), "c", None, draw(st.sampled_from(["small", "small", "big"])), draw(st.sampled_from("xxy")), "",
                start, start + draw(st.sampled_from([0, 1, 250])), draw(segment_lists()), i,
            )
        )  # fmt: skip
    return trace


Path = tuple[object, ...]


def twin(trace: list[Request], policy: Policy) -> list[Usage]:
    """Keeps every cached prefix as a full tuple of keys and scans all of them at each request."""
    seconds = {"5m": 300, "1h": 3600}
    store: list[tuple[Path, float, float, str]] = []  # path, touched, available, ttl
    out: dict[str, Usage] = {}
    for r in sorted(trace, key=lambda r: r.started_at_s):
        now = r.started_at_s
        store = [e for e in store if now <= e[1] + seconds[e[3]]]
        keys: Path = (r.model, r.scope, r.salt, *(s.key for s in r.segments))

        def size(path: Path, r: Request = r) -> int:
            return sum(s.tokens for s in r.segments[: len(path) - 3])

        def place(path: Path, r: Request = r) -> int:
            return sum(s.positions for s in r.segments[: len(path) - 3])

        points: dict[Path, str] = {}
        for n, s in enumerate(r.segments):
            if s.breakpoint:
                points[keys[: n + 4]] = policy.ttl or s.breakpoint
        minimum = policy.min_cacheable_tokens.get(r.model, policy.default_min_cacheable_tokens)
        points = {p: t for p, t in points.items() if size(p) >= minimum}
        hits = [
            e for e in store for p in points
            if p[: len(e[0])] == e[0] and e[2] <= now and place(p) - place(e[0]) < policy.look_back
        ]  # fmt: skip
        best = max(hits, key=lambda e: len(e[0]), default=None)
        a = size(best[0]) if best else 0
        b = max([a, *(size(p) for p, t in points.items() if t == "1h")])
        c = max([b, *map(size, points)])
        out[r.id] = Usage(size(keys) - c, a, c - b, b - a, r.output_tokens)
        if best:
            store = [(p, now if best[0][: len(p)] == p else touched, av, t) for p, touched, av, t in store]
        for p, ttl in points.items():
            old = [e for e in store if e[0] == p]
            inside = best is not None and len(p) <= len(best[0])
            if old and inside:
                continue
            asked = min(ttl, best[3], key=lambda t: seconds[t]) if inside and best else ttl
            store = [e for e in store if e[0] != p]
            available = min([r.response_began_at_s, *(e[2] for e in old)])
            lifetime = max([asked, *(e[3] for e in old)], key=lambda t: seconds[t])
            store.append((p, now, available, lifetime))
    return [out[r.id] for r in trace]


@given(traces(), st.sampled_from([None, "5m", "1h"]))
def test_twin_agrees(trace: list[Request], ttl: Ttl | None) -> None:
    policy = replace(BASE, ttl=ttl)
    assert simulate(trace, policy) == twin(trace, policy)


@given(traces())
def test_a_longer_ttl_never_reads_less(trace: list[Request]) -> None:
    short, mixed, long = (simulate(trace, replace(BASE, ttl=t)) for t in ("5m", None, "1h"))
    for s, m, lo in zip(short, mixed, long, strict=True):
        assert s.cache_read_tokens <= m.cache_read_tokens <= lo.cache_read_tokens


@given(traces())
def test_the_classes_add_up_to_the_prompt(trace: list[Request]) -> None:
    for request, usage in zip(trace, simulate(trace, BASE), strict=True):
        assert usage.prompt_tokens == sum(s.tokens for s in request.segments)
        assert min(usage.input_tokens, usage.cache_creation_5m_tokens, usage.cache_creation_1h_tokens) >= 0


@given(traces())
def test_a_wider_look_back_never_reads_less(trace: list[Request]) -> None:
    """Holds for one TTL: entries are left at every breakpoint whatever was read."""
    narrow, wide = (simulate(trace, replace(BASE, look_back=n, ttl="5m")) for n in (1, 20))
    assert all(n.cache_read_tokens <= w.cache_read_tokens for n, w in zip(narrow, wide, strict=True))
