"""A fit of a real parameter to two rows that were simulated with a value of it."""

import pytest
from tenstorrent.compare import Runner, validate
from tenstorrent.fit import Fit, Model, fit, project_model

from launcher.bench.published import Published, default_files, read_published

NAME, WANTED = "wormhole:risc.eth_command_ns", 60.0
ROWS = ("TT0001", "TT0002")


@pytest.fixture(scope="module")
def model() -> Model:
    """Of one parameter and what follows it."""
    whole = project_model(["wormhole"])
    return Model(
        tuple(each for each in whole.parameters if each.name == NAME),
        tuple(each for each in whole.followers if each.leader == NAME),
    )


@pytest.fixture(scope="module")
def rows(model: Model) -> list[Published]:
    """A ring's pings, with the figures that they have with the value that is wanted."""
    own = [row for path in default_files() for row in read_published(path) if row.id in ROWS]
    judged = validate(own, model.settings({NAME: WANTED}))
    return [each.row._replace(value=each.simulated) for each in judged]


def test_it_finds_the_value_that_the_rows_were_simulated_with(model: Model, rows: list[Published]) -> None:
    def once() -> Fit:
        return fit(model, model.neutral, rows, Runner(1), probes=4)

    found = once()
    assert model.neutral[NAME] < 0.5 * WANTED
    assert found.values[NAME] == pytest.approx(WANTED, rel=0.1)
    assert found.rows == {NAME: list(ROWS)}
    assert once() == found
