"""Time `ccache analyze` on a generated set beside `cat` of the same files, whole commands, medians of several runs.

Usage: python tests/bench/bench_analyze.py [MEGABYTES] [RUNS]
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generate_logs import generate

ROOT = Path(__file__).parents[2]


def run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        logs, database = Path(folder, "logs"), Path(folder, "x.duckdb")
        files = generate(logs, megabytes)
        paths = sorted(str(path) for path in logs.rglob("*.jsonl"))
        analyze = [sys.executable, "-m", "analyzer", "analyze", str(logs), "--db", str(database), "--json"]
        rows: dict[str, list[tuple[float, float]]] = {"cat": [], "cold": [], "again": [], "one grew": []}
        for _ in range(runs):
            database.unlink(missing_ok=True)
            rows["cat"].append(run(["cat", *paths]))
            rows["cold"].append(run(analyze))
            rows["again"].append(run(analyze))
            with open(paths[0], "ab") as stream:
                stream.write(Path(paths[0]).read_bytes().splitlines(keepends=True)[-1])
            rows["one grew"].append(run(analyze))
        print(f"{megabytes} MB in {files} files, median of {runs}")
        cat = statistics.median(wall for wall, _ in rows["cat"])
        for name, times in rows.items():
            wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"{name:9} wall {wall:6.2f} s  cpu {cpu:6.2f} s  {wall / cat:6.1f} x cat")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"peak memory of the largest process {peak:.0f} MB")


if __name__ == "__main__":
    main()
