"""Traces and results of other projects, too large to keep here: a folder that CLAUDE_CCACHE_TRACES names.

It holds `usage-series.json` (published usage), `ragpulse/trace.jsonl.gz` (https://github.com/flashserve/RAGPulse),
`kvcache-ai-lab/precomputed-ragpulse.json` (https://github.com/kvcache-ai/kvcache-blog), `mooncake/*_trace.jsonl.gz`
(https://github.com/kvcache-ai/Mooncake) and `weka/trace_*.json.gz` (https://github.com/callanjfox/kv-cache-tester).
"""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def foreign_traces() -> Path:
    """The folder, or a skip that says what to set."""
    name = os.environ.get("CLAUDE_CCACHE_TRACES")
    if not name:
        pytest.skip("CLAUDE_CCACHE_TRACES names no folder of other projects' traces (see tests/oracles/conftest.py)")
    return Path(name)
