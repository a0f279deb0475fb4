"""The `ccache` command. Heavy imports stay inside the commands, so that `ccache --version` is quick."""

import re
import sys
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from analyzer import __version__
from analyzer.cli import analyze, doctor, export, misses, prices, session, simulate, sql, subagents, whatif
from analyzer.errors import CcacheError
from simulator.cli import app as simulate_app
from simulator.errors import SimulatorError

COMPILERS = ("gcc", "g++", "cc", "c++", "clang", "clang++", "icc", "nvcc", "tcc", "emcc", "cl")
COMPILER_CACHE_FLAG = re.compile(
    r"-[sCczMFpxokdX]|--(?:show-(?:stats|config|compression)|clear|cleanup|zero-stats|max-(?:size|files)|recompress"
    r"|evict-older-than|[sg]et-config|print-stats|trim-dir)(?:=.*)?"
)

app = typer.Typer(
    name="ccache",
    help="Where did my prompt cache go, what did it cost me, and what should I change? Reads Claude Code session logs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"claude-ccache {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("analyze")(analyze.analyze)
app.command("misses")(misses.misses)
app.command("session")(session.session)
app.command("subagents")(subagents.subagents)
app.command("whatif")(whatif.whatif)
app.command("export")(export.export)
app.command("sql")(sql.sql)
app.command("prices")(prices.prices)
app.command("doctor")(doctor.doctor)
simulate.mount(simulate_app)
app.add_typer(simulate_app, name="simulate")


def looks_like_compiler_cache(arguments: list[str]) -> bool:
    """True for `ccache gcc -c x.c`, `ccache -s` and the like, which are meant for the C compiler cache."""
    if not arguments:
        return False
    first = arguments[0]
    name = first.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    base = name.rsplit("-", 1)[-1] if name.rstrip("0123456789.-").endswith(COMPILERS) else name
    return (
        COMPILER_CACHE_FLAG.fullmatch(first) is not None
        or base.rstrip("0123456789.-") in COMPILERS
        or name in COMPILERS
    )


def main() -> None:
    """Entry point of `ccache` and `claude-ccache`: expected errors become two lines and an exit code."""
    if looks_like_compiler_cache(sys.argv[1:]):
        _say(
            "this ccache reads Claude Code session logs; it is not the C compiler cache",
            "the compiler cache is often /usr/bin/ccache; call this program as claude-ccache to keep both",
        )
        raise SystemExit(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        ended = app(standalone_mode=False)
    except typer.TyperException as error:
        _refuse(error)
    except typer.Abort:
        _say("aborted", None)
        raise SystemExit(1) from None
    except (CcacheError, SimulatorError) as error:
        _say(error.message, error.hint)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
    except OSError as error:
        message = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
        _say(message, "check free space and permissions, or use --db :memory:")
        raise SystemExit(4) from None
    raise SystemExit(ended or 0)


def _say(message: str, hint: str | None) -> None:
    from analyzer.report.formatting import clean_text

    print(f"ccache: error: {clean_text(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {clean_text(hint)}", file=sys.stderr)


def _refuse(error: typer.TyperException) -> NoReturn:
    """Typer's own errors in the form of ours. A group without its command is answered with its help."""
    context = getattr(error, "ctx", None)
    if context is not None and error.message == context.get_help():
        print(error.message, file=sys.stderr)
    else:
        message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
        command = context.command_path if context is not None else "ccache"
        _say(message[:1].lower() + message[1:], f"run `{command} --help`")
    raise SystemExit(error.exit_code)
