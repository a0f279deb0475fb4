"""Write a set of transcripts of a given size: split responses, tool results up to 2 MB, subagents. Deterministic.

Usage: python tests/bench/generate_logs.py FOLDER MEGABYTES
"""

import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-4-5-20251001")
FILLER = 'lorem ipsum dolor sit amet, consectetur \\n 0123456789 "quoted" /path/to/file.py\n' * 30_000


class Session:
    """One transcript under construction; `bytes` is what it has so far."""

    def __init__(self, rng: random.Random, number: int, agent: str | None = None) -> None:
        self.rng, self.number, self.agent = rng, number, agent
        self.session = f"{number:08x}-0000-4000-8000-000000000000"
        self.at = datetime(2026, 10, 1, tzinfo=UTC) + timedelta(minutes=7 * number)
        self.parent: str | None = None
        self.lines: list[str] = []
        self.bytes = 0
        self.context = 20_000

    def _write(self, **fields: object) -> None:
        self.at += timedelta(seconds=self.rng.uniform(0.2, 9))
        uuid = f"{self.number:08x}-{len(self.lines):04x}-4000-8000-{'a' if self.agent else '0' * 1}{0:011x}"
        record = {
            "parentUuid": self.parent, "isSidechain": self.agent is not None, "userType": "external",
            "cwd": f"/home/dev/project-{self.number % 17}", "sessionId": self.session, "version": "2.1.300",
            "gitBranch": "main", **({"agentId": self.agent} if self.agent else {}), **fields, "uuid": uuid,
            "timestamp": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }  # fmt: skip
        line = json.dumps(record, separators=(",", ":"))
        self.lines.append(line)
        self.bytes += len(line) + 1
        self.parent = uuid

    def turn(self) -> None:
        size = min(int(self.rng.lognormvariate(7.4, 1.5)), 2_000_000)
        if self.rng.random() < 0.0002:
            size = 2_000_000
        result = {"tool_use_id": f"toolu_{len(self.lines)}", "type": "tool_result", "content": FILLER[:size]}
        self._write(
            type="user", message={"role": "user", "content": [result]}, toolUseResult={"stdout": FILLER[: size // 4]}
        )
        created = self.rng.randrange(200, 4_000)
        usage = {
            "input_tokens": 3, "cache_creation_input_tokens": created, "cache_read_input_tokens": self.context,
            "output_tokens": self.rng.randrange(20, 900), "service_tier": "standard", "speed": "standard",
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": created},
        }  # fmt: skip
        self.context += created
        identity = f"msg_{self.number:x}_{self.agent or 'm'}_{len(self.lines)}"
        for kind in ("text", "tool_use")[: self.rng.choice((1, 2, 2))]:
            block = (
                {"type": kind, "text": FILLER[:300]}
                if kind == "text"
                else {"type": kind, "id": "t", "name": "Read", "input": {}}
            )
            message = {"model": MODELS[self.number % 3], "id": identity, "type": "message", "role": "assistant"}
            message |= {"content": [block], "stop_reason": "tool_use", "usage": usage}
            self._write(type="assistant", message=message, requestId=f"req_{identity}")

    def save(self, folder: Path) -> None:
        path = folder / f"{self.session}.jsonl"
        if self.agent:
            path = folder / self.session / "subagents" / f"agent-{self.agent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.lines) + "\n")


def generate(folder: Path, megabytes: int) -> int:
    """Fill `folder` with transcripts of about `megabytes` MB in all; returns the number of files."""
    rng, written, number = random.Random(7), 0, 0
    while written < megabytes * 1_000_000:
        number += 1
        session = Session(rng, number, f"a{number:x}" if number % 4 == 0 else None)
        for _ in range(max(3, int(rng.lognormvariate(3.4, 0.9)))):
            session.turn()
        session.save(folder / "projects" / f"-home-dev-project-{number % 17}")
        written += session.bytes
    return number


if __name__ == "__main__":
    print(generate(Path(sys.argv[1]), int(sys.argv[2])), "files")
