"""Share batches of files between this process and others, one per further processor."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

import analyzer
from analyzer.errors import DatabaseError
from analyzer.transcript.worker import Answer, Job, receive, run, send

PARALLEL_FROM_BYTES = 24 << 20


def run_all(jobs: Sequence[Job], total_bytes: int, take: Callable[[Job, Answer], None]) -> None:
    """Run every job and hand each answer to `take`, in the calling thread.

    Plain child processes rather than forks: DuckDB's threads run already, and a fork could copy a lock they hold.
    A child ends when its standard input does, so none outlives this process. Raises OSError, DatabaseError.
    """
    others = min(len(jobs), os.cpu_count() or 1) - 1 if total_bytes >= PARALLEL_FROM_BYTES else 0
    if others < 1:
        for job in jobs:
            take(job, run(job))
        return
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    answers: queue.SimpleQueue[tuple[Job, Answer | Exception]] = queue.SimpleQueue()
    root = os.path.dirname(os.path.dirname(os.path.abspath(analyzer.__file__)))
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "analyzer.transcript.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        for _ in range(others)
    ]
    try:
        for child in children:
            threading.Thread(target=_feed, args=(child, waiting, answers), daemon=True).start()
        done = 0
        while done < len(jobs):
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                job, answer = answers.get()
                if isinstance(answer, Exception):
                    raise answer from None
                take(job, answer)
                done += 1
                continue
            take(job, run(job))
            done += 1
            while not answers.empty():
                job, answer = answers.get()
                if isinstance(answer, Exception):
                    raise answer from None
                take(job, answer)
                done += 1
    finally:
        for child in children:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream:
                    stream.close()


def _feed(
    child: "subprocess.Popen[bytes]",
    waiting: "queue.SimpleQueue[Job]",
    answers: "queue.SimpleQueue[tuple[Job, Answer | Exception]]",
) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            send(child.stdin, job)
            body = receive(child.stdout)
            if body is None:
                raise DatabaseError("a reading process ended early", "is memory or disk space short? run it again")
            if body[:1] == b'"':
                raise DatabaseError(f"a reading process failed: {msgspec.json.decode(body)}", "check free space")
            answers.put((job, msgspec.json.decode(body, type=Answer)))
        except (OSError, ValueError, DatabaseError, msgspec.MsgspecError) as error:
            answers.put((job, error))
            return
