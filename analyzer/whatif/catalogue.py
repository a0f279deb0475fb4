"""The named scenarios: what each changes, what it assumes and how far to trust it.

Rates and rules: Claude API docs (Pricing, Prompt caching, Batch processing) and Claude Code docs (Prompt caching).
"""

from analyzer.errors import UsageError
from analyzer.whatif.models import TOKEN_RATIO
from analyzer.whatif.plan import Changes, Plan
from analyzer.whatif.results import Confidence, Kind

SAME_TOKENS = "every request keeps its logged tokens"
TWO_RUNS = (
    "the cache is simulated twice, as it was set and as changed; only the difference moves tokens of the logged rows"
)
OTHER_LOSSES = "losses that time does not explain (changed prompts, resumes, upgrades) stay as logged"
ONE_TTL = "chains that never wrote stay uncached"
COMPACT_AT = 100_000


def _plan(
    name: str, kind: Kind, confidence: Confidence, changes: Changes, gist: str, *assumptions: str
) -> tuple[str, Plan]:
    return name, Plan(name, kind, changes, gist, (gist, *assumptions), confidence)


FIXED: dict[str, Plan] = dict(
    (
        _plan("standard", "price", "exact", Changes(tier="standard"), "no batch or priority tier", SAME_TOKENS),
        _plan(
            "batch",
            "price",
            "low",
            Changes(tier="batch"),
            "all but fast requests, if answers may wait 24 h",
            "tokens at half price, web searches not; fast mode does not exist in batches",
            "the logged cache reads would still be hits, which batches do not promise",
        ),
        _plan(
            "priority",
            "price",
            "low",
            Changes(tier="priority"),
            "not publicly priced: committed capacity, by contract",
        ),
        _plan(
            "fast",
            "price",
            "high",
            Changes(speed="fast"),
            "fast mode wherever the model has it",
            "models without a fast rate, and batches, stay as they are",
            "one speed throughout: caches lost to a change of speed are kept",
            TWO_RUNS,
        ),
        _plan(
            "fast-off",
            "price",
            "high",
            Changes(speed="standard"),
            "no fast mode",
            "one speed throughout: caches lost to a change of speed are kept",
            TWO_RUNS,
        ),
        _plan(
            "us-only",
            "price",
            "exact",
            Changes(place="us"),
            "US-only inference, 1.1x on tokens where offered",
            "first-party requests of 4.6 and later models; others unchanged",
            SAME_TOKENS,
        ),
        _plan(
            "global",
            "price",
            "exact",
            Changes(place="global"),
            "no US-only inference, no regional endpoint",
            SAME_TOKENS,
        ),
        _plan(
            "bedrock-regional",
            "price",
            "high",
            Changes(place="regional"),
            "regional Bedrock endpoints, 1.1x from 4.5 on",
            "same tokens and cache; standard speed, which is all that Bedrock has",
        ),
        _plan(
            "vertex-regional",
            "price",
            "high",
            Changes(place="regional"),
            "regional Vertex endpoints, 1.1x from 4.5 on",
            "same tokens and cache; standard speed, which is all that Vertex has",
        ),
        _plan(
            "today",
            "price",
            "exact",
            Changes(today=True),
            "today's rates instead of those of each day",
            SAME_TOKENS,
        ),
        _plan(
            "negotiated",
            "price",
            "exact",
            Changes(list_prices=False),
            "your own rates",
            SAME_TOKENS,
            "with --prices FILE, actual is at these rates already, and list-prices shows the difference",
        ),
        _plan(
            "list-prices",
            "price",
            "exact",
            Changes(list_prices=True),
            "list prices instead of --prices FILE",
            SAME_TOKENS,
        ),
        _plan(
            "no-cache",
            "cache",
            "high",
            Changes(cache="off"),
            "caching off: every prompt token is input",
            "DISABLE_PROMPT_CACHING=1",
        ),
        _plan(
            "all-5m",
            "cache",
            "medium",
            Changes(ttl_main="5m", ttl_agents="5m"),
            "every cache write lives 5 minutes",
            "FORCE_PROMPT_CACHING_5M=1",
            TWO_RUNS,
            ONE_TTL,
        ),
        _plan(
            "all-1h",
            "cache",
            "medium",
            Changes(ttl_main="1h", ttl_agents="1h"),
            "every cache write lives 1 hour",
            'settings promptCacheTtl and subagentPromptCacheTtl "1h"',
            TWO_RUNS,
            OTHER_LOSSES,
            ONE_TTL,
        ),
        _plan(
            "main-5m",
            "cache",
            "medium",
            Changes(ttl_main="5m"),
            "main conversations 5m, subagents as they were",
            'setting promptCacheTtl "5m"',
            TWO_RUNS,
            ONE_TTL,
        ),
        _plan(
            "main-1h",
            "cache",
            "medium",
            Changes(ttl_main="1h"),
            "main conversations 1h, subagents as they were",
            'setting promptCacheTtl "1h"',
            TWO_RUNS,
            OTHER_LOSSES,
            ONE_TTL,
        ),
        _plan(
            "subagents-5m",
            "cache",
            "medium",
            Changes(ttl_agents="5m"),
            "subagents 5m, main conversations as they were",
            'setting subagentPromptCacheTtl "5m"',
            TWO_RUNS,
            ONE_TTL,
        ),
        _plan(
            "subagents-1h",
            "cache",
            "medium",
            Changes(ttl_agents="1h"),
            "subagents 1h, main conversations as they were",
            'setting subagentPromptCacheTtl "1h"',
            TWO_RUNS,
            OTHER_LOSSES,
            ONE_TTL,
        ),
        _plan(
            "best-ttl",
            "bound",
            "medium",
            Changes(cache="best-ttl"),
            "each chain on its best TTL",
            "known only afterwards: as it was, 5m or 1h, whichever was cheapest for the chain",
            TWO_RUNS,
            OTHER_LOSSES,
        ),
        _plan(
            "best-setting",
            "cache",
            "medium",
            Changes(cache="best-setting"),
            "cheapest TTL settings",
            "5m or 1h for main conversations, 5m or 1h for subagents, or as it was",
            TWO_RUNS,
            OTHER_LOSSES,
        ),
        _plan(
            "keep-alive",
            "cache",
            "low",
            Changes(cache="keep-alive"),
            "idle main conversations pinged before they expire",
            "a ping repeats the last prompt with no output every 4 minutes (5m writes) or 55 minutes (1h writes)",
            "pings stop once they have cost as much as writing again, also after the end of a conversation",
            TWO_RUNS,
            OTHER_LOSSES,
        ),
        _plan(
            f"compact-at-{COMPACT_AT // 1000}k",
            "work",
            "low",
            Changes(cache="compact", number=COMPACT_AT),
            f"main conversations compacted at {COMPACT_AT:,} tokens",
        ),
        _plan(
            "no-compaction",
            "work",
            "low",
            Changes(cache="no-compaction"),
            "no compaction while the window has room",
            "what a compaction dropped is read again by every later request, up to 1,000,000 tokens (200,000 for models"
            " without a longer window)",
            "the compaction call itself is in no log, so its saving is not counted",
        ),
        _plan(
            "resume",
            "work",
            "low",
            Changes(cache="resume"),
            "resume the last session instead of starting anew",
            "a session of the same project and model that began within the TTL of the one before continues it: its"
            " start is read from the cache, and the older context is read by every request",
            "up to the context window; older sessions stay new",
        ),
        _plan(
            "subagents-as-forks",
            "work",
            "low",
            Changes(cache="fork"),
            "subagents as forks of the main conversation",
            "the same turns at the main conversation's model on top of its context at the spawn, the task 500 tokens",
            "forks write for 5 minutes",
        ),
        _plan(
            "subagents-inline",
            "work",
            "low",
            Changes(cache="inline"),
            "subagents' work done in the main conversation",
            "the same turns at the main conversation's model on top of its context at the spawn, the task 500 tokens",
            "what they gathered is read by the main conversation until its next compaction",
        ),
        _plan(
            "perfect",
            "bound",
            "exact",
            Changes(cache="perfect"),
            "nothing lost that was once written (a bound)",
            "every request reads all that the request before it left in the cache, up to its own prompt",
        ),
    )
)


def compaction_plan(tokens: int) -> Plan:
    if tokens < 20_000:
        raise UsageError(
            f"cannot compact at {tokens:,} tokens", "at least 20k: tools and system prompt alone take that"
        )
    gist = f"main conversations compacted at {tokens:,} tokens"
    return Plan(
        f"compact-at-{tokens // 1000}k",
        "work",
        Changes(cache="compact", number=tokens),
        gist,
        (
            gist,
            "the compaction call reads the context (writes it, where the log lost it) and answers with 4,000 tokens",
            "after it the context is what the conversation began with and 12,000 tokens of summary and files",
            "the work goes on as logged, with the same new content; logged compactions stay where they were",
        ),
        "low",
    )


FIXED[f"compact-at-{COMPACT_AT // 1000}k"] = compaction_plan(COMPACT_AT)


def model_plan(canonical: str) -> Plan:
    gist = "the same turns"
    return Plan(
        canonical.removeprefix("claude-"),
        "model",
        Changes(model=canonical),
        gist,
        (
            gist,
            f"between tokenizers (4.7 and later, and before) tokens are {TOKEN_RATIO} times as many, or as few",
            "same answers; rates, prompt bands and shortest cacheable prefix are the model's own",
            "one model throughout: caches lost to a change of model are kept",
            TWO_RUNS,
        ),
        "low",
    )
