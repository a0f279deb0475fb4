"""A process that parses batches of transcripts: jobs on stdin, answers on stdout, until stdin ends.

It imports neither DuckDB nor the command line, so that it starts in a few hundredths of a second.
"""

import sys
from datetime import datetime
from typing import IO

import msgspec

from analyzer.transcript.reader import Continuation, read_transcript
from analyzer.transcript.rows import Agent, Sighting

LONGEST_LIST = 1000


class Task(msgspec.Struct):
    """One file to read; `earlier` where an earlier reading may be continued."""

    file_id: int
    path: str
    mtime_ns: int
    earlier: tuple[Continuation, list[Sighting], list[Agent]] | None = None


class Job(msgspec.Struct):
    """Files to parse; the rows go to `stem`.sightings, .events, .agents and .file_state as NDJSON."""

    stem: str
    now: datetime
    tasks: list[Task]


class Reading(msgspec.Struct):
    """What one file held: the parsed part of its row in `files`."""

    file_id: int
    stem: str
    is_agent_file: bool
    first_timestamp: datetime | None
    first_cwd: str | None
    lines: int
    broken_lines: int
    usage_lines: int
    synthetic_lines: int
    invalid_fields: int
    titles: int
    bytes_read: int
    lines_read: int
    appended: bool
    kept_lines: int
    only_grew: bool
    """Whether nothing of an earlier reading was taken back."""


class Answer(msgspec.Struct):
    readings: list[Reading]
    failed: dict[str, str]


class _Kept(msgspec.Struct):
    file_id: int
    state: str


def run(job: Job) -> Answer:
    """Parse a batch. A file that cannot be read is named in the answer, with the reason."""
    encoder = msgspec.json.Encoder()
    answer = Answer([], {})
    events, agents, kept = bytearray(), bytearray(), bytearray()
    with open(f"{job.stem}.sightings", "wb") as stream:
        for task in job.tasks:
            try:
                parsed, continuation, read, appended = read_transcript(
                    task.file_id, task.path, task.mtime_ns, job.now, task.earlier
                )
            except OSError as error:
                answer.failed[task.path] = error.strerror or "cannot be read"
                continue
            state = parsed.state
            for row in parsed.sightings.values():
                if row.iterations and len(row.iterations) > LONGEST_LIST:
                    state.invalid_fields += 1
                    row.iterations = None
                if len(row.tools) > LONGEST_LIST:
                    row.tools = row.tools[:LONGEST_LIST]
            stream.write(encoder.encode_lines(list(parsed.sightings.values())))
            events += encoder.encode_lines(parsed.events)
            agents += encoder.encode_lines(list(parsed.agents))
            if continuation is not None:
                kept += encoder.encode(_Kept(task.file_id, encoder.encode(continuation).decode())) + b"\n"
            earlier = task.earlier if appended else None
            before = earlier[0].parser.lines if earlier else 0
            only_grew = earlier is not None and all(row.ordinal <= before for row in earlier[1])
            answer.readings.append(
                Reading(
                    file_id=task.file_id,
                    stem=parsed.stem,
                    is_agent_file=parsed.is_agent_file,
                    first_timestamp=state.first_timestamp,
                    first_cwd=state.first_cwd,
                    lines=state.lines,
                    broken_lines=state.broken_lines,
                    usage_lines=state.usage_lines,
                    synthetic_lines=state.synthetic_lines,
                    invalid_fields=state.invalid_fields,
                    titles=state.titles,
                    bytes_read=read,
                    lines_read=state.lines - before,
                    appended=appended,
                    kept_lines=before,
                    only_grew=only_grew,
                )
            )
    for name, rows in (("events", events), ("agents", agents), ("file_state", kept)):
        with open(f"{job.stem}.{name}", "wb") as stream:
            stream.write(rows)
    return answer


def send(stream: IO[bytes], message: Job | Answer | str) -> None:
    body = msgspec.json.encode(message)
    stream.write(len(body).to_bytes(8, "big") + body)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message, or None at the end of the stream."""
    head = stream.read(8)
    return stream.read(int.from_bytes(head, "big")) if len(head) == 8 else None


def main() -> None:
    while (body := receive(sys.stdin.buffer)) is not None:
        try:
            send(sys.stdout.buffer, run(msgspec.json.decode(body, type=Job)))
        except OSError as error:
            send(sys.stdout.buffer, f"{error.strerror or error}: {error.filename or ''}")


if __name__ == "__main__":
    main()
