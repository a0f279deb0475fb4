"""Find config roots and transcript files. Never opens a transcript, never follows a path that a log names."""

import glob
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analyzer.errors import NoLogsError

SKIPPED_NAMES = frozenset({"journal.jsonl"})
SKIPPED_FOLDERS = frozenset({"memory", "tool-results"})


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """One transcript on disk; `relative_path` starts below the nearest `projects` folder, else at the scanned root."""

    path: str
    relative_path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def default_roots(environ: Mapping[str, str], home: Path) -> list[Path]:
    """Config folders that exist, deduplicated by real path: $CLAUDE_CONFIG_DIR (comma list), ~/.claude, XDG."""
    names = [part.strip() for part in environ.get("CLAUDE_CONFIG_DIR", "").split(",") if part.strip()]
    candidates = [Path(name).expanduser() for name in names]
    candidates += [home / ".claude", Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "claude"]
    roots: dict[str, Path] = {}
    for candidate in candidates:
        if candidate.is_dir():
            roots.setdefault(os.path.realpath(candidate), candidate)
    return list(roots.values())


def folders_below(roots: Iterable[str]) -> tuple[str, ...]:
    """The real folders, separator included, below which these roots' transcripts lie or lay."""
    folders: dict[str, None] = {}
    for root in roots:
        projects = os.path.join(root, "projects")
        base = projects if os.path.isdir(projects) else root
        folders[os.path.join(os.path.realpath(base), "")] = None
        try:
            with os.scandir(base) as entries:
                linked = [entry.path for entry in entries if entry.is_symlink()]
        except OSError:
            continue
        folders.update((os.path.join(os.path.realpath(link), ""), None) for link in sorted(linked))
    return tuple(folders)


def sample_root() -> Path:
    """The sample sessions that ship in the package."""
    return Path(__file__).parent / "samples"


def find_transcripts(paths: Iterable[str]) -> tuple[list[TranscriptFile], list[str]]:
    """Every transcript under files, folders and globs, once per real path, sorted; second: what could not be read.

    Raises NoLogsError for a path that matches nothing.
    """
    found: dict[str, TranscriptFile] = {}
    unreadable: list[str] = []
    for given in paths:
        expanded = os.path.expanduser(given)
        matches = [expanded] if os.path.lexists(expanded) else sorted(glob.glob(expanded, recursive=True))
        if not matches:
            raise NoLogsError(
                f"no such file or folder: {given}",
                "give a config folder, a projects folder, a project folder, a .jsonl file or a glob",
            )
        for match in matches:
            if os.path.isdir(match):
                base = os.path.join(match, "projects")
                _walk(base if os.path.isdir(base) else match, found, unreadable)
            else:
                _add(match, found, unreadable)
    return sorted(found.values(), key=lambda file: file.path), sorted(unreadable)


def _walk(root: str, found: dict[str, TranscriptFile], unreadable: list[str]) -> None:
    """Every transcript below `root`, links followed, each real folder once."""
    seen: set[str] = set()
    waiting = [(root, os.path.realpath(root))]
    while waiting:
        folder, real = waiting.pop()
        if real in seen:
            continue
        seen.add(real)
        try:
            with os.scandir(real) as entries:
                below = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            unreadable.append(f"{folder}: {error.strerror}")
            continue
        for entry in below:
            path = os.path.join(folder, entry.name)
            if _is_folder(entry):
                if entry.name not in SKIPPED_FOLDERS:
                    waiting.append((path, _real(entry)))
            elif entry.name.endswith(".jsonl") and entry.name not in SKIPPED_NAMES:
                _add_real(_real(entry), path, found, unreadable)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _real(entry: "os.DirEntry[str]") -> str:
    """The real path of an entry of a real folder."""
    return os.path.realpath(entry.path) if entry.is_symlink() else entry.path


def _add(path: str, found: dict[str, TranscriptFile], unreadable: list[str]) -> None:
    _add_real(os.path.realpath(path), path, found, unreadable)


def _add_real(real: str, path: str, found: dict[str, TranscriptFile], unreadable: list[str]) -> None:
    if real in found or os.path.basename(real) in SKIPPED_NAMES:
        return
    try:
        status = os.stat(real)
    except OSError as error:
        unreadable.append(f"{path}: {error.strerror}")
        return
    if not stat.S_ISREG(status.st_mode):
        unreadable.append(f"{path}: not a regular file")
        return
    try:
        real.encode()
    except UnicodeEncodeError:
        unreadable.append(f"{os.fsencode(path).decode('utf-8', 'replace')}: its name is not valid UTF-8")
        return
    found[real] = TranscriptFile(
        real,
        _relative(real),
        status.st_dev,
        status.st_ino,
        status.st_size,
        max(0, status.st_mtime_ns),  # a time before 1970 is as good as none
        max(0, status.st_ctime_ns),
    )


def _relative(real: str) -> str:
    """The path below `projects`; elsewhere the whole path, so that it never depends on how the file was named."""
    parts = real.split(os.sep)
    last = len(parts) - 1 - parts[::-1].index("projects") if "projects" in parts else 0
    return "/".join(parts[last + 1 :])
