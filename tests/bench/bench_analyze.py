"""Time `ccache analyze` on a generated set beside `cat` of the same files, whole commands, medians of several runs.

Where `ccusage` is on the PATH, it runs in turn with them (its JSON by day, offline).

Usage: python tests/bench/bench_analyze.py [MEGABYTES] [RUNS]
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generate_logs import generate

ROOT = Path(__file__).parents[2]


def run(command: list[str], **variables: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MB of one command, with compiled modules as an installed program has them.

    The peak is that of its largest process.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        logs, database = Path(folder, "logs"), Path(folder, "x.duckdb")
        files = generate(logs, megabytes)
        paths = sorted(str(path) for path in logs.rglob("*.jsonl"))
        analyze = [sys.executable, "-m", "analyzer", "analyze", str(logs), "--db", str(database), "--json"]
        rows: dict[str, list[tuple[float, float, float]]] = {"cat": [], "cold": [], "again": [], "one grew": []}
        ccusage = shutil.which("ccusage")
        if ccusage:
            rows["ccusage"] = []
        run([sys.executable, "-m", "analyzer", "analyze", paths[0], "--db", ":memory:"])
        for _ in range(runs):
            database.unlink(missing_ok=True)
            rows["cat"].append(run(["cat", *paths]))
            if ccusage:
                rows["ccusage"].append(run([ccusage, "daily", "--offline", "--json"], CLAUDE_CONFIG_DIR=str(logs)))
            rows["cold"].append(run(analyze))
            rows["again"].append(run(analyze))
            with open(paths[0], "ab") as stream:
                stream.write(Path(paths[0]).read_bytes().splitlines(keepends=True)[-1])
            rows["one grew"].append(run(analyze))
        print(f"{megabytes} MB in {files} files, median of {runs}")
        cat = statistics.median(wall for wall, _, _ in rows["cat"])
        for name, times in rows.items():
            wall, cpu, peak = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"{name:9} wall {wall:6.2f} s  cpu {cpu:6.2f} s  peak {peak:4.0f} MB  {wall / cat:6.1f} x cat")


if __name__ == "__main__":
    main()
