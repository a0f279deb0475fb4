"""Replay traces on a tiny model and check every request's reuse against the policy's read, in whole blocks.

    python tests/bench/conformance_replay.py PATH... [--window 8192] [--policy logged] [--full-size] [--longest N]

A path is a trace file, a folder of them, or a folder of session logs, of which each session is replayed.

The rule: reused = block * floor(min(policy read / scale, prompt - 1) / block), policy read / scale taken at the
segment boundary. With --full-size each trace is cut to the requests that fit the window and replayed at scale 1.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from simulator.engine import Engine
from simulator.forward import LlamaForward
from simulator.replay.plan import make_plan, prompt_tokens
from simulator.replay.run import Measuring, run_plan
from simulator.trace import Request
from simulator.trace_files import read_trace
from tests.tiny_llama import tiny_llama


def traces(path: Path, longest: int | None) -> Iterator[tuple[str, list[Request]]]:
    if not (path / "projects").is_dir():
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            if file.name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")):
                yield file.name, read_trace(file)
        return
    from analyzer.cli import options
    from analyzer.trace_export import export_trace

    with options.opened(options.Asked(paths=(str(path),), db=":memory:")) as (connection, scope, _):
        requests = export_trace(connection, scope)
        sessions = dict(connection.execute("SELECT request_key, session_id FROM shown").fetchall())
    found: dict[str, list[Request]] = {}
    for request in requests:
        found.setdefault(sessions[request.id], []).append(request)
    for session in sorted(found, key=lambda name: -len(found[name]))[:longest]:
        yield f"{path.name} {session[:8]}", found[session]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--policy", default="logged", choices=("logged", "5m", "1h", "none", "auto"))
    parser.add_argument("--full-size", action="store_true")
    parser.add_argument("--longest", type=int, help="only the N longest sessions of each folder of logs")
    asked = parser.parse_args()
    forward = LlamaForward(tiny_llama(hidden=18, layers=1, vocabulary=49152, context=asked.window))
    wrong = total = reading = 0
    for name, trace in (found for path in asked.paths for found in traces(path, asked.longest)):
        if asked.full_size:
            trace = [request for request in trace if prompt_tokens(request) <= asked.window]
        if not trace:
            print(f"{name}: no request fits")
            continue
        factor = Fraction(1) if asked.full_size else None
        plan = make_plan(trace, asked.policy, window=asked.window, block_size=64, factor=factor)
        replay = run_plan(plan, Engine(forward), measuring=Measuring(samples=0))
        off = [row for row in replay.requests if row.reused_tokens != row.expected_reused_tokens]
        total += len(replay.requests)
        reading += sum(row.reused_tokens > 0 for row in replay.requests)
        wrong += len(off)
        print(f"{name}: {len(replay.requests)} requests at scale {replay.scale:.3f}, {len(off)} off")
        for row in off[:3]:
            print(f"   {row.request_id}: reused {row.reused_tokens}, expected {row.expected_reused_tokens}")
    print(f"{total - wrong} of {total} requests as the rule says ({reading} of them reuse something)")
    return 1 if wrong or not total else 0


if __name__ == "__main__":
    raise SystemExit(main())
