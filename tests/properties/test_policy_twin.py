"""`simulate` against a slow twin that replays the whole history of touches for every question asked."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

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
SECONDS = {"5m": 300, "1h": 3600}


class Twin:
    """Keeps every cached prefix as a full tuple of keys and scans all of them at each request."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.store: list[tuple[Path, float, float, str]] = []  # path, touched, available, ttl

    def serve(self, r: Request) -> Usage:
        policy, now = self.policy, r.started_at_s
        store = [e for e in self.store if now <= e[1] + SECONDS[e[3]]]
        keys: Path = (r.model, r.scope, r.salt, *(s.key for s in r.segments))

        def size(path: Path) -> int:
            return sum(s.tokens for s in r.segments[: len(path) - 3])

        def place(path: Path) -> int:
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
        if best:
            store = [(p, now if best[0][: len(p)] == p else touched, av, t) for p, touched, av, t in store]
        for p, ttl in points.items():
            old = [e for e in store if e[0] == p]
            inside = best is not None and len(p) <= len(best[0])
            if old and inside:
                continue
            asked = min(ttl, best[3], key=lambda t: SECONDS[t]) if inside and best else ttl
            store = [e for e in store if e[0] != p]
            available = min([r.response_began_at_s, *(e[2] for e in old)])
            lifetime = max([asked, *(e[3] for e in old)], key=lambda t: SECONDS[t])
            store.append((p, now, available, lifetime))
        self.store = store
        return Usage(size(keys) - c, a, c - b, b - a, r.output_tokens)


def twin(trace: list[Request], policy: Policy) -> list[Usage]:
    cache = Twin(policy)
    out = {r.id: cache.serve(r) for r in sorted(trace, key=lambda r: r.started_at_s)}
    return [out[r.id] for r in trace]


NAMES = [("small", "x", ""), ("small", "x", ""), ("big", "x", ""), ("small", "y", ""), ("small", "x", "fast")]
"""Model, scope and salt of a conversation; most share them."""
waits = st.sampled_from([0, 0, 10, 150, 299, 301, 3400])
answers = st.sampled_from([0, 0, 20, 200])
ttls = st.sampled_from(["5m", "1h"])


class Conversations(RuleBasedStateMachine):
    """Agents that talk, fork, go back and wait; after each request the whole trace is billed as the twin has it."""

    chains = Bundle("chains")

    @initialize(
        ttl=st.sampled_from([None, None, "5m", "1h"]),
        look_back=st.sampled_from([2, 3, 20]),
        minimum=st.sampled_from([0, 0, 6]),
    )
    def begin(self, ttl: Ttl | None, look_back: int, minimum: int) -> None:
        self.policy = Policy({"big": 12}, minimum, look_back=look_back, ttl=ttl)
        self.cache = Twin(self.policy)
        self.now = 0.0
        self.trace: list[Request] = []
        self.billed: list[Usage] = []
        self.prompts: dict[str, tuple[Segment, ...]] = {}
        self.names: dict[str, tuple[str, str, str]] = {}

    @rule(target=chains, system=st.sampled_from("ab"), names=st.sampled_from(NAMES))
    def start(self, system: str, names: tuple[str, str, str]) -> str:
        return self._new((Segment(system, 5),), names)

    @rule(target=chains, chain=chains)
    def fork(self, chain: str) -> str:
        return self._new(self.prompts[chain], self.names[chain])

    @rule(
        chain=chains, keys=st.text("bc", max_size=2), ttl=ttls, system=st.sampled_from([None, None, "1h"]),
        wait=waits, answer=answers,
    )  # fmt: skip
    def say(self, chain: str, keys: str, ttl: Ttl, system: Ttl | None, wait: int, answer: int) -> None:
        """Extend a prompt, with a breakpoint at its end and perhaps one after its first segment."""
        added = tuple(Segment(key, 2, 2 if key == "c" else 1) for key in keys)
        self._send(chain, self.prompts[chain] + added, {0: system} if system else {}, ttl, wait, answer)

    @rule(chain=chains, keep=st.integers(1, 3), ttl=ttls, wait=waits, answer=answers)
    def go_back(self, chain: str, keep: int, ttl: Ttl, wait: int, answer: int) -> None:
        """Send the begin of a prompt, with a breakpoint at its end."""
        self._send(chain, self.prompts[chain][:keep], {}, ttl, wait, answer)

    def _new(self, prompt: tuple[Segment, ...], names: tuple[str, str, str]) -> str:
        chain = str(len(self.prompts))
        self.prompts[chain], self.names[chain] = prompt, names
        return chain

    def _send(
        self, chain: str, prompt: tuple[Segment, ...], marks: dict[int, Ttl], ttl: Ttl, wait: int, answer: int
    ) -> None:
        marks = {len(prompt) - 1: ttl} | marks
        segments = tuple(replace(s, breakpoint=marks.get(i)) for i, s in enumerate(prompt))
        self.prompts[chain] = segments
        self.now += wait
        id_, began = str(len(self.trace)), self.now + answer
        self.trace.append(Request(id_, chain, None, *self.names[chain], self.now, began, segments, 1))
        self.billed.append(self.cache.serve(self.trace[-1]))
        assert simulate(self.trace, self.policy) == self.billed


Conversations.TestCase.settings = settings(max_examples=250, stateful_step_count=25, deadline=None)
TestConversations = Conversations.TestCase


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
