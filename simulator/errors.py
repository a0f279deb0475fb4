"""Errors that a user can act on: one line of what and where, one hint, one exit code."""


class SimulatorError(Exception):
    """Base of every expected failure; the command line prints `message` and `hint` and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SimulatorError):
    """A flag or argument that cannot be obeyed."""

    exit_code = 2


class MissingExtraError(SimulatorError):
    """A library of an optional extra is not installed."""

    exit_code = 7


class ModelError(SimulatorError):
    """A model that is absent, damaged, cannot be fetched or is of the wrong kind."""

    exit_code = 8


class TraceError(SimulatorError):
    """A trace file that cannot be read, or a trace that cannot be written."""

    exit_code = 9
