"""Errors that a user can act on: one line of what and where, one hint, one exit code."""


class CcacheError(Exception):
    """Base of every expected failure; the CLI prints `message` and `hint` and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CcacheError):
    """A flag or argument that cannot be obeyed."""

    exit_code = 2


class NoLogsError(CcacheError):
    """No transcript was found where the user pointed."""

    exit_code = 3


class DatabaseError(CcacheError):
    """The database is locked, newer than this program, damaged or not writable."""

    exit_code = 4


class PricesError(CcacheError):
    """A price table that cannot be read."""

    exit_code = 5


class QueryError(CcacheError):
    """SQL that DuckDB refused."""

    exit_code = 6
