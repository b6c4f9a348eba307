"""What the tests of the config share: a working directory of their own, and the line that must come of a mistake."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sipsim.chips.config import load
from sipsim.config.load import Override, parse_set
from sipsim.core.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that files are shown by their bare names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file in the working directory; answers with its bare name."""

    def written(name: str, content: str | bytes) -> Path:
        (here / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return Path(name)

    return written


@pytest.fixture(scope="session")
def line_of() -> Callable[..., str]:
    """The line of the ConfigError that must come; ``texts`` are what follows ``--set``."""

    def line(
        config: Path | None = None,
        ccl: Path | None = None,
        overrides: Sequence[Override] = (),
        texts: Sequence[str] = (),
    ) -> str:
        with pytest.raises(ConfigError) as caught:
            load(config, ccl, [*overrides, *map(parse_set, texts)])
        assert str(caught.value).isprintable()
        return str(caught.value)

    return line
