"""Recorded data of ranks are read without trust: a bad file fails the run, by name."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from outcomes import rank_outcome, record

from launcher.report.checks import check_recorded_io
from launcher.report.outcome import Outcome
from sipsim.core.dtypes import DTYPES, DType
from sipsim.records.artifacts import RECORDED_IO, make_artifact_folder, rank_folder


def left(folder: Path, dtype: DType = DTYPES["f16"], **spoilt: Any) -> Outcome:
    """Two ranks that summed their data, with some files replaced: by an array, bytes, or None for no file."""
    outcome = Outcome(2)
    for rank in (0, 1):
        outcome.ranks[rank] = rank_outcome(rank, record(wrong=None, dtype=dtype.name))
        recorded = make_artifact_folder(rank_folder(str(folder), rank), RECORDED_IO)
        np.save(recorded / f"0-{rank}-in.npy", np.full((2, 4), rank + 1, dtype.numpy).view(dtype.stored))
        np.save(recorded / f"0-{rank}-out.npy", np.full((2, 4), 3, dtype.numpy).view(dtype.stored))
    for name, what in spoilt.items():
        path = Path(rank_folder(str(folder), int(name[-1])), RECORDED_IO, f"0-{name[-1]}-{name[:-1]}.npy")
        if what is None:
            path.unlink()
        elif isinstance(what, bytes):
            path.write_bytes(what)
        else:
            np.save(path, what.view(dtype.stored) if what.dtype == dtype.numpy else what)
    system = SimpleNamespace(n_sips=2)
    plan: Any = SimpleNamespace(reference=lambda inputs, _system: [sum(inputs)] * 2, system=system)
    check_recorded_io(outcome, plan, str(folder))
    return outcome


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_what_is_right_and_what_is_wrong(tmp_path: Path, dtype: DType) -> None:
    assert [rank.runs[0].wrong for rank in left(tmp_path, dtype).ranks.values()] == [0, 0]
    outcome = left(tmp_path, dtype, out1=np.array([[3, 3, 3, 4], [3, 3, 3, 3]], dtype.numpy))
    assert outcome.error is None
    assert [rank.runs[0].wrong for rank in outcome.ranks.values()] == [0, 1]


@pytest.mark.parametrize(
    ("spoilt", "rank", "why"),
    [
        ({"in1": b""}, 1, "the recorded data of rank 1 cannot be read: 0-1-in.npy: "),
        ({"out0": b"PK\x03\x04" + bytes(99)}, 0, "0-0-out.npy: "),
        ({"out1": b"\x93NUMPY\x01\x00\x04\x00{'a'"}, 1, "0-1-out.npy: "),
        ({"out1": np.zeros((2, 4), "V8")}, 1, "its elements are |V8"),
        ({"out0": np.zeros((3, 5), "<f2")}, 0, "the data of rank 0 cannot be checked: "),
        ({"in0": None}, 0, "the recorded data of rank 0 have not arrived from its host"),
    ],
)
def test_a_file_that_cannot_be_checked(tmp_path: Path, spoilt: dict[str, Any], rank: int, why: str) -> None:
    error = left(tmp_path, **spoilt).error
    assert error is not None
    assert (error.kind, error.rank) == ("agent_failed", rank)
    assert why in error.message
    assert error.message.endswith("; run again, or with --no-verify-data")
