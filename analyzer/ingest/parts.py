"""A folder for rows on their way into the database."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyzer.database import TEMPORARY


@contextmanager
def parts_folder() -> Iterator[str]:
    """A fresh temporary folder that names its process; folders of processes that were killed are removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}[0-9]*-*"):
        owner = left.name.removeprefix(TEMPORARY).partition("-")[0]
        if owner.isdigit() and not _runs(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    if os.name != "posix":
        return True  # there, asking with a signal would end the process
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
