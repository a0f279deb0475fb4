"""Two snapshots of what was sent, as hashes: which tool or system section changed."""

import pytest

from analyzer.prompt_snapshots import CUT_AT, Change, Snapshot, difference, read_snapshot

BASE = "system=aa,bb,cc tools=Read:11,mcp__git__log:22"


def test_reading() -> None:
    assert read_snapshot(BASE) == Snapshot(("aa", "bb", "cc"), (("Read", "11"), ("mcp__git__log", "22")))
    assert read_snapshot("system=aa tools=") == Snapshot(("aa",), ())
    assert read_snapshot("system= tools=ns:Read:11") == Snapshot((), (("ns:Read", "11"),))
    assert read_snapshot(None) == read_snapshot("") == Snapshot()


@pytest.mark.parametrize(
    ("after", "tools", "sections"),
    [
        ("system=aa,bb,cc tools=Read:11,mcp__git__log:22", None, None),
        ("system=aa,xx,cc tools=", "", "system section 2 of 3 changed"),
        ("system=xx,bb,yy tools=", "", "system sections 1, 3 of 3 changed"),
        ("system=aa,bb tools=", "", "3 system sections became 2"),
        ("system= tools=Read:11,mcp__git__log:33", "tools changed mcp__git__log", ""),
        ("system= tools=Read:11", "tools removed mcp__git__log", ""),
        ("system= tools=Read:11,mcp__git__log:22,Bash:44", "tools added Bash", ""),
        ("system= tools=mcp__git__log:22,Read:11", "tools in another order", ""),
        ("system= tools=", None, None),
    ],
)
def test_what_changed(after: str, tools: str | None, sections: str | None) -> None:
    change = difference(read_snapshot(BASE), read_snapshot(after))
    assert (change and change.tools_text, change and change.sections_text) == (tools, sections)


def test_the_second_snapshot_brings_the_tools() -> None:
    start = read_snapshot("system=aa tools=").then(read_snapshot("system=aa tools=Read:11"))
    again = read_snapshot("system=aa tools=").then(read_snapshot("system=aa tools=Read:12"))
    assert difference(start, again) == Change(("Read",), "tools changed Read", "")
    assert difference(start, read_snapshot("system=aa tools=")) is None


def test_a_cut_list_proves_neither_arrival_nor_departure() -> None:
    many = ",".join(f"tool_{number}:{number:08x}" for number in range(2_000))
    cut = read_snapshot(f"system=aa tools={many}"[:CUT_AT])
    assert not cut.complete
    assert difference(read_snapshot("system=aa tools=other:1,tool_1:00000001"), cut) is None
    changed = difference(read_snapshot("system=aa tools=tool_1:ffffffff"), cut)
    assert changed is not None
    assert changed.tools_text == "tools changed tool_1"
