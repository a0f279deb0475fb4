"""The program as its users run it: exit codes, the two lines of an error, and figures that agree across formats."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from analyzer import __version__

ROOT = Path(__file__).parents[2]
SAMPLES = str(ROOT / "analyzer" / "samples")
PROGRAM = "from tests.price_snapshot import use_frozen_prices as u; u(); from analyzer.cli import main; main()"


def environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        "TZ": "UTC",
        "COLUMNS": "100",
    }


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def run(home: Path, *arguments: str) -> tuple[int, str, str]:
    with start(home, *arguments) as process:
        output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def assert_error(result: tuple[int, str, str], code: int) -> None:
    """Exactly one error line and one hint line, nothing on stdout, and this exit code."""
    found, output, errors = result
    lines = errors.splitlines()
    assert found == code, errors
    assert output == ""
    assert len(lines) == 2, errors
    assert lines[0].startswith("ccache: error: ")
    assert lines[1].startswith("hint: ")


def totals(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output)["totals"]
    return found


def test_version(tmp_path: Path) -> None:
    assert run(tmp_path, "--version") == (0, f"claude-ccache {__version__}\n", "")


def test_formats_agree(tmp_path: Path) -> None:
    outputs = {}
    for name in ("json", "csv", "markdown", "terminal"):
        code, outputs[name], errors = run(tmp_path, "analyze", SAMPLES, "--db", ":memory:", "--format", name)
        assert (code, errors) == (0, "")
    expected = totals(outputs["json"])
    rows = list(csv.DictReader(io.StringIO(outputs["csv"])))
    for field in ("requests", "input_tokens", "cache_read_tokens", "output_tokens", "rewritten_tokens", "misses"):
        assert sum(int(row[field]) for row in rows) == expected[field]
    cost = f"${float(expected['cost_usd']):.2f}"
    hit_rate = f"{expected['hit_rate']:.1%}"
    for name in ("markdown", "terminal"):
        assert cost in outputs[name]
        assert hit_rate in outputs[name]
        assert re.search(rf"\b{expected['requests']} requests", outputs[name])


def test_without_logs_the_samples_are_shown(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, "analyze", "--json")
    assert code == 0
    assert len(errors.splitlines()) == 1
    assert json.loads(output)["meta"]["sample_data"] is True
    assert totals(output)["requests"] > 0
    assert list(tmp_path.rglob("*.duckdb")) == []


def test_without_a_path_the_default_roots_count_and_what_they_held_before(tmp_path: Path) -> None:
    project = tmp_path / ".claude" / "projects" / "p"
    elsewhere = tmp_path / "elsewhere"
    samples = sorted(Path(SAMPLES).rglob("*.jsonl"))
    linked = tmp_path / "linked"
    for folder in (project, elsewhere, linked):
        folder.mkdir(parents=True)
    (project.parent / "q").symlink_to(linked)
    shutil.copy(samples[0], project / samples[0].name)
    shutil.copy(samples[1], linked / samples[1].name)
    for sample in samples[2:]:
        shutil.copy(sample, elsewhere / sample.name)
    own = json.loads(run(tmp_path, "analyze", "--json")[1])
    assert json.loads(run(tmp_path, "analyze", str(elsewhere), "--json")[1])["totals"] != own["totals"]
    assert json.loads(run(tmp_path, "analyze", "--json")[1])["totals"] == own["totals"]
    for gone in (project / samples[0].name, linked / samples[1].name):
        gone.unlink()
    for more in ((), ("--no-ingest",)):
        after = json.loads(run(tmp_path, "analyze", "--json", *more)[1])
        assert after["totals"] == own["totals"]
        assert after["quality"]["files_missing"] == 2


def test_missing_path(tmp_path: Path) -> None:
    assert_error(run(tmp_path, "analyze", str(tmp_path / "nowhere"), "--db", ":memory:"), 3)


@pytest.mark.parametrize("arguments", [("gcc", "-c", "x.c"), ("-s",)])
def test_meant_for_the_compiler_cache(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert_error(run(tmp_path, *arguments), 2)


def test_newer_database(tmp_path: Path) -> None:
    path = str(tmp_path / "new.duckdb")
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (999)")
    assert_error(run(tmp_path, "analyze", SAMPLES, "--db", path), 4)


def test_database_that_is_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database\n" * 1000)
    assert_error(run(tmp_path, "analyze", SAMPLES, "--db", str(tmp_path / "notes.txt")), 4)
    assert (tmp_path / "notes.txt").read_text() == "not a database\n" * 1000


def test_a_damaged_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    assert run(tmp_path, "analyze", SAMPLES, "--db", str(path))[0] == 0
    whole = path.read_bytes()
    broken = [whole[: len(whole) // 2]]
    for place in range(12_288 + 40, len(whole), 262_144):  # DuckDB's headers, its blocks
        flipped = bytes(byte ^ 0x5A for byte in whole[place : place + 64])
        broken.append(whole[:place] + flipped + whole[place + 64 :])
    damaged = 0
    for content in broken:
        path.write_bytes(content)
        path.with_suffix(".duckdb.wal").unlink(missing_ok=True)
        code, output, errors = run(tmp_path, "analyze", SAMPLES, "--db", str(path))
        if code:  # not every block is in use
            assert_error((code, output, errors), 4)
            assert "x.duckdb is damaged: " in errors
            assert "move it away" in errors
            damaged += 1
    assert damaged > 5


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    path.touch()
    assert run(tmp_path, "analyze", SAMPLES, "--db", str(path))[0] == 0
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("analyz",), "did you mean 'analyze'"),
        (("analyze", "--top", "0"), "'--top'"),
        (("analyze", "--format", "xml"), "'xml' is not one of 'terminal', 'json', 'csv', 'markdown'"),
        (("analyze", "--evil\x1b[31m"), "no such option: --evil"),
        (("analyze", "--since"), "requires an argument"),
        (("sql", "select 1", "select\x1b[31m 2"), "unexpected extra argument"),
        (("simulate", "replay"), "missing argument"),
    ],
)
def test_a_wrong_command_line_is_an_error_and_a_hint(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    result = run(tmp_path, *arguments)
    assert_error(result, 2)
    assert words in result[2].lower()
    assert "--help`" in result[2]
    assert "\x1b" not in result[2]


@pytest.mark.parametrize("arguments", [(), ("simulate",)])
def test_no_command_shows_the_commands(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output, errors = run(tmp_path, *arguments)
    assert (code, output) == (2, "")
    assert errors.startswith("Usage: ")
    assert "Commands:" in errors


@pytest.mark.parametrize("zone", ["Nowhere/Land", "../etc/passwd", "Europe"])
def test_bad_timezone(tmp_path: Path, zone: str) -> None:
    assert_error(run(tmp_path, "analyze", SAMPLES, "--db", ":memory:", "--timezone", zone), 2)


def test_sql_reads_and_refuses_to_write(tmp_path: Path) -> None:
    path = str(tmp_path / "h.duckdb")
    assert run(tmp_path, "analyze", SAMPLES, "--db", path, "--json")[0] == 0
    code, output, errors = run(tmp_path, "sql", "SELECT count(*) AS n FROM requests", "--db", path, "--json")
    assert (code, errors) == (0, "")
    assert json.loads(output)[0]["n"] > 0
    for query in (
        "DROP TABLE files",
        f"COPY files TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/other.duckdb' AS other",
        f"SELECT * FROM read_text('{tmp_path}/h.duckdb')",
    ):
        assert_error(run(tmp_path, "sql", query, "--db", path), 6)
    assert {entry.name for entry in tmp_path.iterdir()} == {"h.duckdb"}
    assert run(tmp_path, "sql", "SELECT count(*) FROM files", "--db", path)[0] == 0


def test_sql_with_more_columns_than_the_terminal_has_room_for(tmp_path: Path) -> None:
    path = str(tmp_path / "h.duckdb")
    assert run(tmp_path, "analyze", SAMPLES, "--db", path, "--json")[0] == 0
    code, output, errors = run(tmp_path, "sql", "SELECT * FROM requests LIMIT 2", "--db", path)
    assert (code, errors) == (0, "")
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= 80
    assert [line for line in output.splitlines() if line.startswith("row ")] == ["row 1 of 2", "row 2 of 2"]
    narrow = run(tmp_path, "sql", "SELECT model, count(*) AS n FROM requests GROUP BY 1", "--db", path)[1]
    assert narrow.splitlines()[0].split() == ["model", "n"]


def test_sql_on_a_database_that_is_not_there(tmp_path: Path) -> None:
    assert_error(run(tmp_path, "sql", "SELECT 1", "--db", str(tmp_path / "typo.duckdb")), 4)
    assert not list(tmp_path.glob("typo*"))


def test_two_at_once_on_one_database(tmp_path: Path) -> None:
    arguments = ("analyze", SAMPLES, "--db", str(tmp_path / "h.duckdb"), "--json")
    with start(tmp_path, *arguments) as first, start(tmp_path, *arguments) as second:
        outputs = [process.communicate(timeout=120) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert totals(outputs[0][0]) == totals(outputs[1][0])


@pytest.mark.parametrize("delay", [0.5, 0.9, 1.3])
def test_killed_midway_then_run_again(tmp_path: Path, delay: float) -> None:
    """The workers end with the killed program (they hold its stdout open), and the next run starts cleanly."""
    usage = {"input_tokens": 1, "output_tokens": 2}
    filler = [{"type": "text", "text": "x" * 20_000}]
    for name in range(40):
        with open(tmp_path / f"{name}.jsonl", "w", encoding="utf-8") as stream:
            for number in range(40):
                message = {"id": f"msg_{name}_{number}", "model": "m", "usage": usage, "content": filler}
                record = {"type": "assistant", "timestamp": "2026-01-01T00:00:00Z", "message": message}
                stream.write(json.dumps(record) + "\n")
    arguments = ("analyze", str(tmp_path), "--db", str(tmp_path / "h.duckdb"), "--json")
    with start(tmp_path, *arguments) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    code, output, errors = run(tmp_path, *arguments)
    assert code == 0, errors
    assert (totals(output)["requests"], totals(output)["output_tokens"]) == (1600, 3200)


def test_import_stays_light(tmp_path: Path) -> None:
    heavy = {"torch", "transformers", "genai_prices", "duckdb"}
    code = f"import sys, analyzer.cli; print(sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"


def test_doctor_says_what_is_there(tmp_path: Path) -> None:
    project = tmp_path / ".claude" / "projects" / "p"
    project.mkdir(parents=True)
    (tmp_path / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 7}')
    (project / "gone.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    record = {"type": "assistant", "version": "2.1.9", "message": {"id": "msg_1", "model": "m", "usage": {}}}
    (project / "s.jsonl").write_text(json.dumps(record) + "\n{\n")
    assert run(tmp_path, "analyze", "--json")[0] == 0
    code, output, errors = run(tmp_path, "doctor", "--json")
    assert code == 0, errors
    found = [(row["check"], row["finding"]) for row in json.loads(output)]
    said = " | ".join(f"{check}: {finding}" for check, finding in found)
    for words in (
        "1 transcripts",
        "1 unreadable",
        "after 7 days",
        "1 broken lines",
        "2.1.9 (1)",
        f"duckdb {duckdb.__version__}",
    ):
        assert words in said


def test_doctor_with_a_database_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "h.duckdb"
    path.write_text("no database")
    code, output, errors = run(tmp_path, "doctor", "--db", str(path))
    assert (code, errors) == (0, "")
    assert "cannot be used" in " ".join(output.split())


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file where the data folder should be")
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    assert_error(run(tmp_path, "analyze"), 4)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM, "analyze", SAMPLES, "--db", ":memory:", "--json"],
            env=environment(tmp_path),
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 4
    assert "Traceback" not in found.stderr
    assert found.stderr.startswith("ccache: error: ")


def test_the_database_on_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + PROGRAM
    found = subprocess.run(
        [sys.executable, "-c", code, "analyze", SAMPLES, "--db", str(tmp_path / "h.duckdb")],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN) and None,
    )
    assert found.returncode == 4, found.stderr
    assert "Traceback" not in found.stderr
    (tmp_path / "h.duckdb").unlink(missing_ok=True)
    assert run(tmp_path, "analyze", SAMPLES, "--db", str(tmp_path / "h.duckdb"))[0] == 0


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    """Whatever moment the reader saw, the next run has everything."""
    log = tmp_path / "s.jsonl"
    arguments = ("analyze", str(log), "--db", str(tmp_path / "h.duckdb"), "--json")

    def lines(first: int) -> str:
        message = {"model": "m", "usage": {"input_tokens": 1}}
        return "".join(
            json.dumps({"type": "assistant", "message": {"id": f"msg_{number}", **message}}) + "\n"
            for number in range(first, first + 500)
        )

    log.write_text(lines(0))
    with start(tmp_path, *arguments) as process:
        for step in range(1, 40):
            with open(log, "a") as stream:
                stream.write(lines(step * 500))
            time.sleep(0.02)
        assert process.communicate(timeout=60)[1] == ""
    code, output, errors = run(tmp_path, *arguments)
    assert code == 0, errors
    assert totals(output)["requests"] == 20_000


@pytest.mark.parametrize(
    "query",
    [
        "EXPLAIN ANALYZE DELETE FROM files",
        "EXPLAIN ANALYZE INSERT INTO schema_version VALUES (9)",
        "SELECT * FROM sqlite_scan('f', 't')",
        "SELECT 1; DROP TABLE files",
    ],
)
def test_no_query_writes_or_fetches(tmp_path: Path, query: str) -> None:
    path = str(tmp_path / "h.duckdb")
    assert run(tmp_path, "analyze", SAMPLES, "--db", path)[0] == 0
    before = run(tmp_path, "sql", "SELECT count(*) FROM files", "--db", path)
    code, output, errors = run(tmp_path, "sql", query, "--db", path)
    assert (code, output) == (6, ""), errors
    assert "extensions.duckdb.org" not in errors
    assert run(tmp_path, "sql", "SELECT count(*) FROM files", "--db", path) == before


def test_a_database_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as other:
        other.execute("CREATE TABLE files (a INTEGER)")
    for command in ("analyze", "misses", "sql"):
        assert_error(run(tmp_path, command, "--db", str(path)), 4)
    with duckdb.connect(str(path)) as other:
        assert other.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("files",)]


@pytest.mark.parametrize("name", ["md:x", "s3://bucket/key", "duckdb:/p", "a\nb"])
def test_a_database_name_that_is_no_file(tmp_path: Path, name: str) -> None:
    assert_error(run(tmp_path, "analyze", SAMPLES, "--db", name), 4)
    assert not list(tmp_path.iterdir())


def test_a_path_with_lock_in_its_name_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "clock.db"
    path.write_text("no database")
    started = time.monotonic()
    assert_error(run(tmp_path, "analyze", SAMPLES, "--db", str(path)), 4)
    assert time.monotonic() - started < 25


@pytest.mark.parametrize("day", ["2026-11-02", "20261102", "2026-W45-1"])
def test_every_form_of_a_day_covers_the_day(tmp_path: Path, day: str) -> None:
    asked = ("analyze", SAMPLES, "--db", ":memory:", "--json", "--until")
    assert totals(run(tmp_path, *asked, day)[1]) == totals(run(tmp_path, *asked, "2026-11-02")[1])


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00+14:00", "yesterday"])
def test_an_instant_outside_the_calendar(tmp_path: Path, moment: str) -> None:
    assert_error(run(tmp_path, "analyze", SAMPLES, "--db", ":memory:", "--since", moment), 2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('input = "1e30"', "not a price"),
        ('input = "1e999999999"', "not a price"),
        ('input = "1"\nfrom = 2026-06-04T19:11:00Z', "full hours"),
        ('input = "1"\nfrom = 0001-01-01T00:00:00+14:00', "entry 1"),
    ],
)
def test_prices_out_of_range(tmp_path: Path, line: str, words: str) -> None:
    rest = "\n".join(f'{name} = "1"' for name in ("output", "cache_read", "cache_creation_5m", "cache_creation_1h"))
    prices = tmp_path / "p.toml"
    prices.write_text(f'[[rates]]\nmodel = "claude-opus-4-6"\n{rest}\n{line}\n')
    result = run(tmp_path, "analyze", SAMPLES, "--db", ":memory:", "--prices", str(prices))
    assert_error(result, 5)
    assert words in result[2]


@pytest.mark.parametrize("zone", ["EST5EDT,M3.2.0,M11.1.0", "UTC0", ":/etc/localtime", "localtime", "Europe/Berlin"])
def test_any_zone_of_the_system_gives_a_report(tmp_path: Path, zone: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "analyze", SAMPLES, "--db", ":memory:", "--json"],
        env=environment(tmp_path) | {"TZ": zone},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["meta"]["timezone"]


def test_a_terminal_that_cannot_show_a_name(tmp_path: Path) -> None:
    log = tmp_path / "s.jsonl"
    message = {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}
    log.write_text(json.dumps({"type": "assistant", "cwd": "/home/x/日本語", "message": message}) + "\n")
    for format in ("terminal", "json", "csv", "markdown"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "analyze", str(log), "--db", ":memory:", "--format", format],
            env=environment(tmp_path) | {"PYTHONIOENCODING": "ascii"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_sql_prints_json_that_any_reader_takes(tmp_path: Path) -> None:
    path = str(tmp_path / "h.duckdb")
    assert run(tmp_path, "analyze", SAMPLES, "--db", path)[0] == 0
    code, output, errors = run(tmp_path, "sql", "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS b", "--db", path, "--json")
    assert code == 0, errors
    assert json.loads(output, parse_constant=pytest.fail) == [{"a": 1, "a_2": 2, "b": None}]


def test_views_are_listed_with_every_column_on_a_narrow_terminal(tmp_path: Path) -> None:
    path = str(tmp_path / "h.duckdb")
    assert run(tmp_path, "analyze", SAMPLES, "--db", path)[0] == 0
    code, output, errors = run(tmp_path, "sql", "--db", path)
    assert code == 0, errors
    listed = json.loads(run(tmp_path, "sql", "--db", path, "--json")[1])
    said = " ".join(output.split())
    for view in listed:
        assert all(word in said for word in (view["view"], *view["columns"].split(", ")))
