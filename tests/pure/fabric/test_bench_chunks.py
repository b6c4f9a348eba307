"""``scripts/bench chunks``: a larger chunk is more efficient, a smaller one fairer (ADR-0023 D8)."""

import pytest
from bench import kit

SIZES = (256, 1024, 16384, 65536)


def test_larger_is_more_efficient_and_smaller_fairer() -> None:
    rows = kit.document_of("chunks", "--quick")["rows"]
    assert [row["chunk_bytes"] for row in rows] == list(SIZES)
    for model in ("flows", "packets"):
        found = [row[model]["efficiency"] for row in rows]
        assert found == sorted(set(found)), "larger is more efficient"
        assert found == pytest.approx([size / (size + 16) for size in SIZES], rel=1e-5)
    for key in ("wait_ns", "most_wait_ns"):
        found = [row["packets"][key] for row in rows]
        assert found == sorted(set(found)), "smaller is fairer"
        assert max(row["flows"][key] for row in rows) <= 1.25, "flows: half of the edge, whatever the chunk"
    for row, size in zip(rows, SIZES, strict=True):
        assert row["packets"]["most_wait_ns"] <= (size + 16) / 64, "the packet in service"
