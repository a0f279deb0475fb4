"""Where a simulated command's requests come from: a trace file, a folder of them, or a session of the logs."""

from pathlib import Path

from analyzer.cli import options
from analyzer.errors import UsageError
from simulator.trace import Request


def read_requests(source: str, asked: options.Asked) -> list[Request]:
    """`source` is a trace file or folder, a session id or its beginning, or `latest`.

    Raises TraceError for a file that is no trace, and the analyzer's errors for a session that is not there.
    """
    if Path(source).exists():
        from simulator.trace_files import read_trace

        return read_trace(source)
    if Path(source).name != source or Path(source).suffix:
        raise UsageError(f"no such file: {source}", "name a trace file, a folder of them, a session id or latest")
    return _session(source, asked)


def _session(source: str, asked: options.Asked) -> list[Request]:
    from analyzer.errors import NoLogsError
    from analyzer.trace_export import export_trace

    with options.opened(asked) as (connection, scope, _):
        requests = export_trace(connection, scope, None if source == "latest" else source)
        if not requests:
            raise NoLogsError(
                f"no trace file {source}, and no session in the logs", "name a trace file, or the folder of your logs"
            )
        if source != "latest":
            return requests
        latest = max(requests, key=lambda request: request.started_at_s).id
        sessions = dict(connection.execute("SELECT request_key, session_id FROM shown").fetchall())
        return export_trace(connection, scope, sessions[latest])
