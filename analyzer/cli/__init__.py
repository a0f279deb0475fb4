"""The `ccache` command. Heavy imports stay inside the commands, so that `ccache --version` is quick."""

import re
import sys
from io import TextIOWrapper
from typing import Annotated

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
        print(
            "ccache: error: this ccache reads Claude Code session logs; it is not the C compiler cache", file=sys.stderr
        )
        print(
            "hint: the compiler cache is often /usr/bin/ccache; call this program as claude-ccache to keep both",
            file=sys.stderr,
        )
        raise SystemExit(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (CcacheError, SimulatorError) as error:
        from analyzer.report.formatting import clean_text

        print(f"ccache: error: {clean_text(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {clean_text(error.hint)}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(141) from None
    except OSError as error:
        print(f"ccache: error: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        print("hint: check free space and permissions, or use --db :memory:", file=sys.stderr)
        raise SystemExit(4) from None
