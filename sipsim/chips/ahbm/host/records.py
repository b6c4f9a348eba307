"""Records of one rank's collectives for results, and files of the collectives' data for the launcher's check."""

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from sipsim.chips.ahbm.host.stream import Work, WorkTimes
from sipsim.chips.ahbm.sip import Sip
from sipsim.collectives.call import Call, DeviceTensor
from sipsim.collectives.testdata import Mismatch
from sipsim.core.errors import OutputError
from sipsim.core.files import REWRITE, open_file
from sipsim.records.report import SEND_RECV, PeakMemory, RunRecord


class RunRecords:
    """Records and data files of the collectives of a SIP.

    ``runs``: records in the order of the collectives' ends. ``on_record``: called with each record. A collective is
    numbered when it starts, as in the spans and counters of the SIP. ``row``: name of the row of
    collectives that start from now on, or None. ``recorded_io_dir``: directory of data files, empty to write none.
    """

    def __init__(self, sip: Sip, recorded_io_dir: str) -> None:
        self._sip = sip
        self._recorded_io_dir = recorded_io_dir
        self._started = 0
        self.runs: list[RunRecord] = []
        self.row: str | None = None
        self.on_record: Callable[[RunRecord], None] = lambda _record: None
        self.memory = PeakMemory()

    def on_start(self, work: Work) -> None:
        """Number a launch at its start, and save its source. Launches without a result row get the next number."""
        work.run, work.row = self._started, self.row
        if work.is_reported:
            self._started += 1
            self._record_io(work, "in", work.call.source)

    def on_end(self, work: Work) -> None:
        """Save the result and add the record of a collective or message at its end."""
        self._record_io(work, "out", work.call.result)
        self.add(work.call, work, [work.times])

    def add(self, call: Call, last: Work, times: Sequence[WorkTimes], wrong: Mismatch | None = None) -> None:
        """Add the record of a completed call and sample the peak of memory. ``last``: the last iteration.

        ``times``: times of all iterations after the warm-up. ``wrong``: wrong elements, None if not checked.
        """
        self.memory.sample()
        assert last.run is not None
        self._started = max(self._started, last.run + 1)
        dtype = call.larger_tensor().dtype
        busbw = Fraction(1) if call.collective is None else call.collective.busbw_factor(len(call.sips))
        self.runs.append(
            RunRecord(
                collective=SEND_RECV if call.collective is None else call.collective.name,
                algorithm=call.algorithm,
                dtype=dtype.name,
                op=call.op,
                count=call.elements,
                nbytes=call.elements * dtype.itemsize,
                busbw=(busbw.numerator, busbw.denominator),
                spans_ps=tuple([each.span_ps for each in times]),
                kernels_ps=tuple([each.kernels_ps for each in times]),
                wrong=wrong.elements if wrong is not None else None,
                first_wrong=wrong.first if wrong is not None else "",
                values=call.values,
                usage=self._sip.usage.so_far(),
                group=call.group,
                sips=call.sips,
                call=call.number,
                run=last.run,
                workers=call.workers,
                in_place=call.source is call.result,
                row=last.row,
            )
        )
        self.on_record(self.runs[-1])

    def _record_io(self, work: Work, when: str, tensor: DeviceTensor | None) -> None:
        if tensor is None or not self._recorded_io_dir:
            return
        path = Path(self._recorded_io_dir) / f"{work.run}-{self._sip.sip}-{when}.npy"
        # A tensor of a schedule has no row per cube.
        n_rows = 1 if work.call.is_schedule else self._sip.plan.system.n_cubes
        rows = tensor.peek().reshape(n_rows, -1).view(tensor.dtype.stored)
        try:
            with os.fdopen(open_file(path, REWRITE), "wb") as file:
                np.save(file, rows)
        except OSError as error:
            what = f"{path}: data for the check cannot be written: {error.strerror or error}"
            raise OutputError(
                f"{what}; free space on that disk, set TMPDIR to another folder, or give --no-verify-data"
            ) from None
