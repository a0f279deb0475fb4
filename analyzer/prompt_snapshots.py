"""What changed between two prompt snapshots, of which ingest keeps hashes only. Pure; no I/O.

A snapshot event's detail is `system=<hash>,... tools=<name>:<hash>,...`. Claude Code writes a first snapshot without
tools and a second with them, so an empty part says nothing.
"""

from dataclasses import dataclass

CUT_AT = 8 * 4096
"""Details of this length lost their end."""
NAMED = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    sections: tuple[str, ...] = ()
    """One hash per system block."""
    tools: tuple[tuple[str, str], ...] = ()
    """(name, hash) in the order sent."""
    complete: bool = True

    def then(self, later: "Snapshot") -> "Snapshot":
        """What is known after `later` was seen too."""
        return Snapshot(
            later.sections or self.sections,
            later.tools or self.tools,
            later.complete if later.tools else self.complete,
        )


@dataclass(frozen=True, slots=True)
class Change:
    tools: tuple[str, ...]
    """Names of the tools that were added, removed or changed; all of them moved where only their order changed."""
    tools_text: str
    sections_text: str


def read_snapshot(detail: str | None) -> Snapshot:
    system, _, tools = (detail or "").partition(" tools=")
    entries = [entry.rpartition(":") for entry in tools.split(",") if entry]
    complete = len(detail or "") < CUT_AT
    if not complete:
        entries = entries[:-1]
    hashes = system.removeprefix("system=").split(",")
    return Snapshot(
        tuple(part for part in hashes if part), tuple((name, digest) for name, _, digest in entries), complete
    )


def difference(before: Snapshot, after: Snapshot) -> Change | None:
    """What differs in the parts that both hold; None where nothing does."""
    tools, tools_text = _tools(before, after)
    sections_text = _sections(before.sections, after.sections)
    return Change(tools, tools_text, sections_text) if tools_text or sections_text else None


def _tools(before: Snapshot, after: Snapshot) -> tuple[tuple[str, ...], str]:
    if not before.tools or not after.tools or before.tools == after.tools:
        return (), ""
    old, new = dict(before.tools), dict(after.tools)
    whole = before.complete and after.complete
    changed = [name for name in new if name in old and new[name] != old[name]]
    added = [name for name in new if name not in old] if whole else []
    removed = [name for name in old if name not in new] if whole else []
    parts = [
        f"{verb} {', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' if len(names) > NAMED else ''}"
        for verb, names in (("added", added), ("removed", removed), ("changed", changed))
        if names
    ]
    if parts:
        return (*added, *removed, *changed), f"tools {'; '.join(parts)}"
    return (tuple(new), "tools in another order") if whole else ((), "")


def _sections(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    if not before or not after or before == after:
        return ""
    if len(before) != len(after):
        return f"{len(before)} system sections became {len(after)}"
    places = [place for place, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new]
    which = ", ".join(map(str, places[:NAMED]))
    return f"system {'section' if len(places) == 1 else 'sections'} {which} of {len(after)} changed"
