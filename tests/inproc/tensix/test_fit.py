"""A fit of a real parameter to two rows that were simulated with a value of it."""

import pytest
from tenstorrent.compare import Runner, validate
from tenstorrent.fit import STARTS, Fit, settings

from launcher.bench.published import default_files, read_published

NAME, WANTED = "wormhole:risc.eth_command_ns", 60.0
ROWS = ("TT0001", "TT0002")


@pytest.mark.slow
def test_it_finds_the_value_that_the_rows_were_simulated_with() -> None:
    own = [row for path in default_files() for row in read_published(path) if row.id in ROWS]
    judged = validate(own, settings({NAME: WANTED}))
    rows = [each.row._replace(value=each.simulated) for each in judged]
    found, again = (Fit([NAME], rows, Runner(1)).run(probes=4).document() for _ in range(2))
    assert STARTS[NAME] < 0.5 * WANTED
    assert found["values"][NAME] == pytest.approx(WANTED, rel=0.1)
    assert found["rows"] == {NAME: list(ROWS)}
    assert again == found
