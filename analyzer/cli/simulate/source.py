"""Where a simulated command's requests come from: a trace file, a folder of them, or a session of the logs."""

from pathlib import Path

from analyzer.cli import options
from simulator.trace import Request


def read_requests(source: str, asked: options.Asked) -> list[Request]:
    """`source` is a trace file or folder, a session id or its beginning, or `latest`.

    Raises TraceError for a file that is no trace, and the analyzer's errors for a session that is not there.
    """
    if Path(source).exists():
        from simulator.trace_files import read_trace

        return read_trace(source)
    return _session(source, asked)


def _session(source: str, asked: options.Asked) -> list[Request]:
    from analyzer.errors import NoLogsError

    raise NoLogsError(f"no trace file {source}", "name a trace file or folder")
