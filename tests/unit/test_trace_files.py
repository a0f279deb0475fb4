"""Trace files: what is written is what is read, and every fault of a file is one line with one hint."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import TraceError
from simulator.trace import Request, Segment, Usage
from simulator.trace_files import iter_trace, read_trace, write_trace

HEADER = '{"format": "ccache-trace", "version": 1}\n'
ROW: dict[str, Any] = {
    "id": "r", "chain": "c", "model": "m", "started_at_s": 0, "response_began_at_s": 1,
    "segments": [{"key": "k", "tokens": 5}], "output_tokens": 1,
}  # fmt: skip
MOONCAKE: dict[str, Any] = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
CALL: dict[str, Any] = {"t": 0.0, "type": "n", "model": "m", "in": 130, "out": 1, "hash_ids": [1, 2]}
SESSION: dict[str, Any] = {"id": "w", "block_size": 64, "requests": [CALL]}


def request(number: int, *segments: Segment, chain: str = "c", **changes: Any) -> Request:
    parts: dict[str, Any] = {"model": "m", "scope": "", "salt": "", **changes}
    return Request(
        f"r{number}", chain, None, parts["model"], parts["scope"], parts["salt"], number * 10.0, number * 10 + 2.5,
        segments, number,
    )  # fmt: skip


names = st.text(st.characters(codec="utf-8"), max_size=3)
counts = st.integers(0, 10**9)
segments = st.builds(
    Segment, names, st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([None, "5m", "1h"])
)  # fmt: skip
usages = st.builds(Usage, counts, counts, counts, counts, counts)
times = st.floats(-1e12, 1e12)


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    trace: list[Request] = []
    for i in range(draw(st.integers(0, 5))):
        before = trace[-1].segments if trace and draw(st.booleans()) else ()
        prompt = before[: draw(st.integers(0, 3))] + tuple(draw(st.lists(segments, max_size=3)))
        parent = draw(st.sampled_from([None, *(r.id for r in trace)]))
        id_ = f"{i}{draw(names)}"
        trace.append(
            Request(
                id_, draw(st.sampled_from("ab")), parent, draw(names), draw(names), draw(names), draw(times),
                draw(times), prompt, draw(counts), draw(st.none() | usages),
            )
        )  # fmt: skip
    return trace


@given(traces(), st.sampled_from(["t.jsonl", "t.jsonl.gz"]))
@settings(deadline=None)  # it writes files
def test_the_own_format_keeps_everything(
    tmp_path_factory: pytest.TempPathFactory, trace: list[Request], name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    write_trace(path, trace)
    assert read_trace(path) == trace
    assert not path.with_name(name + ".part").exists()


def test_what_a_chain_repeats_is_written_once(tmp_path: Path) -> None:
    long = [Segment(f"{i}", 1) for i in range(200)]
    trace = [request(i, *long[: i + 1], chain="ab"[i % 2]) for i in range(200)]
    write_trace(tmp_path / "t.jsonl", trace)
    assert (tmp_path / "t.jsonl").read_text("utf-8").count('"key"') == 2 * 200 - 1
    assert read_trace(tmp_path / "t.jsonl") == trace


def test_the_same_trace_makes_the_same_bytes(tmp_path: Path) -> None:
    trace = [request(0, Segment("a", 5))]
    for name in ("1.gz", "2.gz"):
        write_trace(tmp_path / name, trace)
    assert (tmp_path / "1.gz").read_bytes() == (tmp_path / "2.gz").read_bytes()


def shared_blocks(trace: list[Request], size: int) -> list[list[int]]:
    """For each pair of requests, how many leading blocks (the partial last one included) their prompts share."""
    ids: dict[tuple[object, ...], int] = {}
    blocks = []
    for r in trace:
        tokens = [(s.key, s.tokens, n) for s in r.segments for n in range(s.tokens)]
        path: tuple[object, ...] = (r.model, r.scope, r.salt)
        prompt = [(*path, *tokens[: end + size]) for end in range(0, len(tokens), size)]
        blocks.append([ids.setdefault(block, len(ids)) for block in prompt])
    return blocks


TREE = [
    request(0, Segment("a", 7), Segment("b", 3)),
    request(1, Segment("a", 7), Segment("b", 3), Segment("c", 9)),
    request(2, Segment("a", 7), Segment("x", 3), Segment("c", 9)),
    request(3, Segment("a", 7), Segment("b", 3), model="n"),
    request(4, Segment("a", 7), Segment("b", 3), salt="fast"),
    request(5, Segment("a", 7), Segment("b", 3), Segment("c", 9), Segment("d", 1), chain="agent"),
    request(6),
]


@pytest.mark.parametrize("size", [1, 4, 5, 7, 10, 64])
def test_mooncake_rows_share_ids_exactly_as_prompts_share_tokens(tmp_path: Path, size: int) -> None:
    write_trace(tmp_path / "t.jsonl", TREE, "mooncake", block_tokens=size)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    assert [row["hash_ids"] for row in rows] == shared_blocks(TREE, size)
    assert {tuple(row) for row in rows} == {("timestamp", "input_length", "output_length", "hash_ids")}
    assert [(row["timestamp"], row["input_length"], row["output_length"]) for row in rows] == [
        (10_000 * i, sum(s.tokens for s in r.segments), i) for i, r in enumerate(TREE)
    ]
    found = read_trace(tmp_path / "t.jsonl", block_tokens=size)
    write_trace(tmp_path / "again.jsonl", found, "mooncake", block_tokens=size)
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "t.jsonl").read_bytes()


def test_mooncake_extra_fields_bring_chains_and_the_block_size_back(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.jsonl", TREE, "mooncake", block_tokens=4, extra_fields=("block_size", "session_id"))
    found = read_trace(tmp_path / "t.jsonl")
    assert [r.chain for r in found] == [r.chain for r in TREE]
    assert [sum(s.tokens for s in r.segments) for r in found] == [10, 19, 19, 10, 10, 20, 0]
    assert found[1].parent == found[0].id


@pytest.mark.parametrize("size", [1, 4, 7, 64])
def test_weka_sessions_keep_models_chains_times_and_full_blocks(tmp_path: Path, size: int) -> None:
    """Fields are those that aiperf's reader (https://github.com/ai-dynamo/aiperf) allows; it refuses any other."""
    write_trace(tmp_path / "t.json", TREE, "weka", block_tokens=size)
    session = json.loads((tmp_path / "t.json").read_text("utf-8"))
    assert (session["block_size"], session["hash_id_scope"], session["models"]) == (size, "local", ["m", "n"])
    calls = [c for c in session["requests"] if c["type"] == "s"]
    (agent,) = [c for c in session["requests"] if c["type"] == "subagent"]
    assert set(agent) == {"t", "type", "agent_id", "subagent_type", "status", "models", "requests"}
    assert (agent["agent_id"], agent["t"], agent["requests"][0]["t"]) == ("agent", 50.0, 0.0)
    for call in [*calls, *agent["requests"]]:
        assert set(call) == {
            "t", "type", "model", "in", "out", "hash_ids", "input_types", "output_types", "stop", "api_time",
            "think_time", "ttft",
        }  # fmt: skip
        assert len(call["hash_ids"]) == call["in"] // size
    found = read_trace(tmp_path / "t.json")
    assert [r.model for r in found] == [r.model for r in TREE]
    assert [r.chain for r in found] == ["c", "c", "c", "c", "c", "c/agent", "c"]
    assert [(r.started_at_s, r.response_began_at_s) for r in found] == [(i * 10.0, i * 10 + 2.5) for i in range(7)]
    assert [sum(s.tokens for s in r.segments) for r in found] == [10, 19, 19, 10, 10, 20, 0]
    full = [blocks[: call["in"] // size] for blocks, call in zip(shared_blocks(TREE, size), calls, strict=False)]
    same = [[a[:n] == b[:n] for n in range(4) for a in full for b in full]]
    ids = [call["hash_ids"] for call in calls]
    assert same == [[a[:n] == b[:n] for n in range(4) for a in ids for b in ids]]


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_weka_sub_agents_count_from_their_marker_or_from_the_session(tmp_path: Path, offset: float) -> None:
    inner = [{**CALL, "t": offset}, {**CALL, "t": offset + 7}]
    agent = {"t": 100.0, "type": "subagent", "agent_id": "a", "requests": inner}
    (tmp_path / "t.json").write_text(json.dumps({**SESSION, "requests": [CALL, agent]}, indent=1), "utf-8")
    assert [(r.chain, r.started_at_s) for r in read_trace(tmp_path / "t.json")] == [
        ("w", 0.0), ("w/a", 100.0), ("w/a", 107.0)
    ]  # fmt: skip


def test_a_folder_is_merged_by_start(tmp_path: Path) -> None:
    write_trace(tmp_path / "b.jsonl", [request(1), request(3)])
    write_trace(tmp_path / "a.jsonl.gz", [request(0), replace(request(1), id="same time")])
    (tmp_path / "notes.txt").write_text("no trace", "utf-8")
    assert [r.id for r in read_trace(tmp_path)] == ["r0", "same time", "r1", "r3"]


def test_requests_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(HEADER + json.dumps(ROW) + "\n" + "broken", "utf-8")
    rows = iter_trace(tmp_path / "t.jsonl")
    assert next(rows).id == "r"
    with pytest.raises(TraceError, match="line 3"):
        next(rows)


def test_blank_lines_a_byte_order_mark_and_crlf_do_no_harm(tmp_path: Path) -> None:
    text = "\ufeff" + HEADER + "\n\r\n" + json.dumps(ROW) + "\r\n\n"
    (tmp_path / "t.jsonl").write_bytes(text.encode())
    assert [r.id for r in read_trace(tmp_path / "t.jsonl")] == ["r"]


def own(**changes: Any) -> str:
    return HEADER + json.dumps({**ROW, **changes}) + "\n"


def rows(*fields: dict[str, Any]) -> str:
    return HEADER + "".join(json.dumps({**ROW, **row}) + "\n" for row in fields)


def nested(depth: int) -> str:
    agent = '{"t": 0, "type": "subagent", "agent_id": "a", "requests": ['
    return '{"id": "w", "requests": [' + agent * depth + "]}" * depth + "]}"


HOSTILE: dict[str, str | bytes] = {
    "empty": "",
    "blank": "\n \n",
    "text": "once upon a time\n",
    "list": "[1, 2]\n",
    "number": "5\n",
    "zeros": b"\0" * 5000,
    "not utf-8": b'{"format": "\xff"}\n',
    "unknown object": '{"a": 1}\n',
    "other format": '{"format": "other", "version": 1}\n',
    "format is no text": '{"format": 5, "version": 1}\n',
    "other version": '{"format": "ccache-trace", "version": 2}\n',
    "cut line": own()[:-9],
    "missing field": HEADER + '{"id": "r"}\n',
    "unknown field": own(colour="red"),
    "negative tokens": own(output_tokens=-1),
    "tokens as text": own(output_tokens="1"),
    "too many tokens": own(segments=[{"key": "k", "tokens": 10**30}]),
    "fraction of a token": own(segments=[{"key": "k", "tokens": 1.5}]),
    "not a number": HEADER + json.dumps(ROW).replace('"started_at_s": 0', '"started_at_s": NaN') + "\n",
    "infinite time": HEADER + json.dumps(ROW).replace('"started_at_s": 0', '"started_at_s": 1e999') + "\n",
    "unknown lifetime": own(segments=[{"key": "k", "tokens": 1, "breakpoint": "2h"}]),
    "same id twice": rows({}, {}),
    "unknown parent": own(parent="nobody"),
    "its own parent": own(parent="r"),
    "shares too much": rows({}, {"id": "s", "shared_segments": 2}),
    "shares with another chain": rows({}, {"id": "s", "chain": "d", "shared_segments": 1}),
    "half a surrogate": HEADER + json.dumps(ROW).replace('"id": "r"', '"id": "\\ud800"') + "\n",
    "deep nesting": HEADER + "[" * 100_000 + "]" * 100_000 + "\n",
    "mooncake too few blocks": json.dumps({**MOONCAKE, "input_length": 2000}) + "\n",
    "mooncake too many blocks": json.dumps({**MOONCAKE, "hash_ids": [1, 2, 3]}) + "\n",
    "mooncake text ids": json.dumps({**MOONCAKE, "hash_ids": ["a", "b"]}) + "\n",
    "mooncake huge id": json.dumps({**MOONCAKE, "hash_ids": [1, 2**64]}) + "\n",
    "mooncake without ids": json.dumps({"timestamp": 0, "input_length": 5, "output_length": 1}) + "\n",
    "mooncake no block size": json.dumps({**MOONCAKE, "block_size": 0}) + "\n",
    "mooncake second line": json.dumps(MOONCAKE) + "\n{}\n",
    "weka cut": json.dumps(SESSION)[:-20],
    "weka cut over lines": json.dumps(SESSION, indent=1)[:-20],
    "weka other kind": json.dumps({**SESSION, "requests": [{**CALL, "type": "q"}]}),
    "weka blocks that do not fit": json.dumps({**SESSION, "requests": [{**CALL, "in": 999}]}),
    "weka no block size": json.dumps({**SESSION, "block_size": 0}),
    "weka requests are no list": json.dumps({**SESSION, "requests": {}}),
    "weka nested too deep": nested(50_000),
    "gzip cut": gzip.compress(own().encode())[:-12],
    "gzip damaged": gzip.compress(own().encode())[:12] + b"\xff" * 40,
    "gzip of nothing": gzip.compress(b""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_file_is_one_line_and_one_hint(tmp_path: Path, name: str) -> None:
    content = HOSTILE[name]
    path = tmp_path / "bad"
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    error = caught.value
    assert error.message.startswith(str(path))
    assert error.hint
    assert "\n" not in error.message + error.hint
    assert len(error.message) < len(str(path)) + 200
    assert error.exit_code == 9


@pytest.mark.parametrize("depth", range(50, 1001, 50))
def test_nesting_is_read_or_refused(tmp_path: Path, depth: int) -> None:
    (tmp_path / "t.json").write_text(nested(depth), "utf-8")
    try:
        assert read_trace(tmp_path / "t.json") == []
    except TraceError as error:
        assert "\n" not in error.message  # noqa: PT017 - both outcomes are fine


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "gone", "No such file"), (tmp_path, "no trace files")):
        with pytest.raises(TraceError, match=words):
            read_trace(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(own(), "utf-8")
    (tmp_path / "t.jsonl").chmod(0)
    with pytest.raises(TraceError, match="Permission denied"):
        read_trace(tmp_path / "t.jsonl")


def test_two_files_with_one_request_are_not_merged(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_trace(tmp_path / name, [request(1)])
    with pytest.raises(TraceError, match=r"b\.jsonl: request id 'r1' is also in a\.jsonl"):
        read_trace(tmp_path)


UNWRITABLE: dict[str, list[Request]] = {
    "nan": [replace(request(0), started_at_s=float("nan"))],
    "infinity": [replace(request(0), response_began_at_s=float("inf"))],
    "negative tokens": [request(0, Segment("a", -1))],
    "too many tokens": [request(0, Segment("a", 10**9 + 1))],
    "too many positions": [request(0, Segment("a", 1, 10**6 + 1))],
    "negative usage": [replace(request(0), logged=Usage(cache_read_tokens=-1))],
    "half a surrogate": [request(0, Segment("a", 1), model="\ud800", chain="\ud800")],
}


@pytest.mark.parametrize("trace_format", ["ccache", "mooncake", "weka"])
@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, name: str, trace_format: Any) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("what was here before", "utf-8")
    extra = ("session_id",) if trace_format == "mooncake" else ()
    with pytest.raises(TraceError, match=r"request 'r0' cannot be written") as caught:
        write_trace(path, UNWRITABLE[name], trace_format, extra_fields=extra)
    assert caught.value.hint
    assert path.read_text("utf-8") == "what was here before"
    assert os.listdir(tmp_path) == ["t.jsonl"]


@pytest.mark.parametrize("trace", [[request(1), request(1)], [replace(request(1), parent="r9")]])
def test_ids_and_parents_must_be_sound_to_be_written(tmp_path: Path, trace: list[Request]) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(tmp_path / "t.jsonl", trace)


@pytest.mark.parametrize("trace_format", ["mooncake", "weka"])
def test_blocks_need_tokens(tmp_path: Path, trace_format: Any) -> None:
    with pytest.raises(TraceError, match="block of 0 tokens"):
        write_trace(tmp_path / "t", [request(1)], trace_format, block_tokens=0)


def test_an_empty_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.jsonl", [])
    assert read_trace(tmp_path / "t.jsonl") == []
    with pytest.raises(TraceError, match="no requests"):
        write_trace(tmp_path / "t.json", [], "weka")


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written: No such file"):
        write_trace(tmp_path / "gone" / "t.jsonl", [request(1)])


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_trace(tmp_path / "pipe", [request(1)])
        assert os.read(reader, 10_000).startswith(b'{"format":"ccache-trace"')
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
