"""What every test stands on: frozen prices, one time zone, a terminal of known width, no user's settings."""

import pytest

from tests.price_snapshot import use_frozen_prices

use_frozen_prices()


@pytest.fixture(autouse=True)
def _pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_CCACHE_DB", "CLAUDE_CCACHE_TZ", "XDG_CONFIG_HOME", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TZ", "UTC"), ("COLUMNS", "100"), ("LINES", "40"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
