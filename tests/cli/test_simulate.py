"""`ccache simulate` as its users run it, on a tiny random model."""

import contextlib
import io
import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import huggingface_hub.constants

from analyzer.cli import main
from tests.tiny_model import save_tiny_model

ROOT = Path(__file__).parents[2]
WITHOUT = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.split(".")[0] in {hidden!r} else real(name, *rest)
from analyzer.cli import main
sys.argv = ["ccache", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny")))


def environment(home, **more):
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TZ": "UTC",
        "COLUMNS": "100",
        **more,
    }


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs `ccache simulate ...` in this process, which has paid for importing torch. -> exit code, stdout, stderr."""

    def runs(*arguments, given="", encoding="utf-8", **more):
        monkeypatch.chdir(tmp_path)
        for name in ("CLAUDE_CCACHE_MODEL", "CLAUDE_CCACHE_MODELS", "NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {**environment(tmp_path), **more}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2)]
        monkeypatch.setattr(sys, "argv", ["ccache", "simulate", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code or 0, *(stream.buffer.getvalue().decode(encoding) for stream in streams)

    return runs


def run_program(home, program, *arguments):
    """The same in a process of its own, started by this program."""
    done = subprocess.run(
        [sys.executable, "-c", program, "simulate", *arguments],
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def assert_error(result, code, *words):
    found, output, errors = result
    lines = errors.splitlines()
    assert (found, output, len(lines)) == (code, "", 2), errors
    assert lines[0].startswith("ccache: error: ")
    assert lines[1].startswith("hint: ")
    for word in words:
        assert word in errors


def test_help_loads_no_torch(tmp_path):
    program = "import sys; from analyzer.cli import app\ntry: app(['simulate', '--help'])\nexcept SystemExit: pass\n"
    program += "assert not {'torch', 'transformers', 'rich.table', 'numpy'} & set(sys.modules)"
    code, output, errors = run_program(tmp_path, program)
    assert code == 0, errors
    for command in ("model", "walkthrough", "sample", "kv-growth", "chat"):
        assert command in output


def test_without_the_extra_one_line_says_how_to_install_it(tmp_path):
    for command in ("model", "walkthrough", "sample", "kv-growth", "chat"):
        result = run_program(tmp_path, WITHOUT.format(hidden=("torch", "transformers")), command)
        assert_error(result, 7, "torch and transformers", "pip install 'claude-ccache[simulator]'")


def test_without_the_charts_extra_output_says_so(tmp_path, tiny):
    arguments = ("kv-growth", "--model", tiny, "--output", "x.svg")
    result = run_program(tmp_path, WITHOUT.format(hidden=("altair", "vl_convert")), *arguments)
    assert_error(result, 7, "altair and vl-convert-python", "charts")
    assert not (tmp_path / "x.svg").exists()


def test_without_a_model_both_ways_are_named(run):
    for command in ("model", "walkthrough", "chat"):
        result = run(command)
        assert_error(result, 8, "ccache simulate model --fetch", "HuggingFaceTB/SmolLM2-135M-Instruct")


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (8, ("model", "--model", "no/such-model")),
        (8, ("walkthrough", "--model", "/nowhere/at/all")),
        (2, ("sample", "--temperature", "0")),
        (2, ("sample", "--temperature", "nan")),
        (2, ("sample", "--temperature", "inf")),
        (2, ("kv-growth", "--output", "chart.gif")),
        (2, ("kv-growth", "--output", "no/folder/chart.png")),
    ],
)
def test_bad_input_is_two_lines(run, code, arguments):
    assert_error(run(*arguments), code)


def test_flags_out_of_range_are_refused_before_anything_is_loaded(run):
    for arguments in (
        ("walkthrough", "--stage", "8"),
        ("walkthrough", "--lang", "fr"),
        ("walkthrough", "--max-n", "0"),
        ("sample", "--top-p", "1.5"),
        ("sample", "--runs", "0"),
        ("chat", "--temperature", "-1"),
        ("kv-growth", "--steps", "0"),
    ):
        code, output, errors = run(*arguments)
        assert (code, output) == (2, ""), errors


def test_model(run, tiny):
    code, output, errors = run("model", "--model", tiny, "--json")
    assert code == 0, errors
    facts = json.loads(output)
    assert facts["source"] == {"kind": "folder", "name": tiny, "folder": tiny}
    assert (facts["layers"], facts["heads"], facts["kv_heads"], facts["context"]) == (2, 9, 3, 4096)
    assert re.fullmatch("[0-9a-f]{64}", facts["sha256"])
    code, output, _ = run("model", CLAUDE_CCACHE_MODEL=tiny)
    assert code == 0
    assert facts["sha256"] in output
    assert f"{facts['parameters']:,}" in output


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_walkthrough_on_any_width(run, tmp_path, tiny, language, columns):
    code, output, errors = run("walkthrough", "--model", tiny, "--max-n", "4", "--lang", language, COLUMNS=str(columns))
    assert code == 0, errors
    assert errors == ""
    headings = re.findall(r"^\[(\w+)\] ", output, re.M)
    assert headings == ["0", "1", "2", "3", "4", "5", "5b", "6", "6b", "7"]
    assert ("温度" in output) == (language == "zh")
    assert ("Temperature" in output) == (language == "en")
    assert "Q4_1" not in output
    if language == "en":
        assert max(len(line) for line in output.splitlines()) <= min(columns, 120)


def test_every_label_is_translated_or_kept_on_purpose():
    import ast

    from simulator.cli.texts import LABELS, STAGE_TEXTS

    assert set(STAGE_TEXTS["en"]) == set(STAGE_TEXTS["zh"])
    tree = ast.parse((ROOT / "simulator" / "cli" / "stage_views.py").read_text(encoding="utf-8"))
    said = {
        call.args[0].value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "say"
        and isinstance(call.args[0], ast.Constant)
    }
    assert len(said) > 20
    assert said <= set(LABELS["zh"])
    for english, chinese in LABELS["zh"].items():
        if english != "Q4_1":
            assert set(re.findall(r"{\w+}", english)) == set(re.findall(r"{\w+}", chinese))


def test_walkthrough_json_and_stages(run, tmp_path, tiny):
    code, output, errors = run(
        "walkthrough", "--model", tiny, "--stage", "6", "--stage", "2", "--prompt", "Hi", "--json"
    )
    assert (code, errors) == (0, "")
    told = json.loads(output)
    assert told["prompt"] == "Hi"
    assert [stage["stage"] for stage in told["stages"]] == ["2", "6", "6b"]
    assert all(row["delta"] == 0 for row in told["stages"][2]["reuse"]["exact"]["rows"])


def test_a_terminal_without_utf8(run, tiny):
    for arguments in (("walkthrough", "--max-n", "2", "--lang", "zh"), ("kv-growth", "--steps", "4"), ("sample",)):
        code, output, errors = run(*arguments, "--model", tiny, encoding="ascii")
        assert code == 0, errors
        assert output.isascii()


def test_sample(run, tiny):
    arguments = ("sample", "--model", tiny, "--runs", "3", "--temperature", "0.001", "--temperature", "4")
    code, output, errors = run(*arguments, "--json")
    assert (code, errors) == (0, "")
    rows = json.loads(output)["temperatures"]
    assert [(row["temperature"], row["distinct"], len(row["answers"])) for row in rows] == [(0.001, 1, 3), (4.0, 3, 3)]
    code, shown, _ = run(*arguments)
    assert code == 0
    assert re.search(r"0\.001 .* 1 of 3", shown)
    assert re.search(r"4\.0 .* 3 of 3", shown)


def test_kv_growth_with_chart_files(run, tmp_path, tiny):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    code, output, errors = run("kv-growth", "--model", tiny, "--steps", "9", "--output", "c.svg")
    assert (code, errors) == (0, "chart written to c.svg\n")
    assert (tmp_path / "c.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "█" in output
    code, output, errors = run("kv-growth", "--model", tiny, "--steps", "9", "--output", "c.PNG", "--json")
    assert (tmp_path / "c.PNG").read_bytes().startswith(b"\x89PNG")
    steps = json.loads(output)["steps"]
    assert [step["step"] for step in steps] == list(range(10))
    assert {b["cache_length"] - a["cache_length"] for a, b in itertools.pairwise(steps)} == {1}
    assert {step["cache_bytes"] / step["cache_length"] for step in steps} == {384}


def test_chat_reads_a_pipe(run, tiny):
    given = "Where is it?\n\nOpen at 10?\n/new\nWhere is it?"
    code, output, errors = run("chat", "--model", tiny, "--max-new-tokens", "5", given=given)
    assert code == 0, errors
    told = [[int(number) for number in re.findall(r"prompt (\d+): (\d+) .* (\d+) computed", line)[0]]
            for line in errors.splitlines() if "prompt" in line]  # fmt: skip
    assert all(prompt == cached + computed for prompt, cached, computed in told)
    assert told[0][1] == 0
    assert told[1][1] > told[0][0]
    assert told[2][1:] == [told[0][0] - 1, 1]
    code, output, errors = run("chat", "--model", tiny, "--max-new-tokens", "5", "--json", given=given)
    assert (code, errors) == (0, "a new conversation\n")
    answers = [json.loads(line) for line in output.splitlines()]
    assert [answer["usage"]["prompt_tokens"] for answer in answers] == [prompt for prompt, _, _ in told]
    assert [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers] == [
        cached for _, cached, _ in told
    ]
    assert answers[0]["choices"] == answers[2]["choices"]


def test_chat_without_input_and_with_too_much(run, tiny):
    assert run("chat", "--model", tiny)[:2] == (0, "")
    assert_error(run("chat", "--model", tiny, given="word " * 9000), 2, "exceeds the model's 4096")


def test_seeds_settle_the_draws(run, tiny):
    def answer(seed):
        arguments = ("chat", "--model", tiny, "--max-new-tokens", "8", "--temperature", "2", "--seed", str(seed))
        return run(*arguments, given="Where?")[1]

    assert answer(1) == answer(1) != answer(2)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_chat_on_a_terminal_stops_an_answer_at_ctrl_c_and_ends_at_ctrl_d(tmp_path, tiny):
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        arguments = ["-m", "analyzer", "simulate", "chat", "--model", tiny, "--max-new-tokens", "4000"]
        os.execve(sys.executable, [sys.executable, *arguments], environment(tmp_path, TERM="dumb"))
    screen = ""

    def wait_for(pattern):
        nonlocal screen
        deadline = time.monotonic() + 60
        while not re.search(pattern, screen, re.S):
            assert time.monotonic() < deadline, screen
            if select.select([terminal], [], [], 0.5)[0]:
                with contextlib.suppress(OSError):
                    screen += os.read(terminal, 65536).decode("utf-8", "replace")

    try:
        wait_for("you> ")
        os.write(terminal, b"Where?\n")
        wait_for(r"you> Where\?\r\n.{20}")
        os.write(terminal, b"\x03")
        wait_for(r"\(stopped\)\r\n.*you> ")
        deadline = time.monotonic() + 60
        ended = 0
        while not ended:
            assert time.monotonic() < deadline, screen
            # Again and again: a key that arrives while the line editor takes over the terminal is lost.
            with contextlib.suppress(OSError):
                os.write(terminal, b"\x04")
                if select.select([terminal], [], [], 0.3)[0]:
                    os.read(terminal, 65536)
            ended, status = os.waitpid(pid, os.WNOHANG)
        pid = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
