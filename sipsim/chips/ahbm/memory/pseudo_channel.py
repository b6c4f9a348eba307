"""The state of one pseudo channel: open rows, busy banks, the data bus, the write queue, refresh.

Decisions in integer arithmetic, without events: a read is given its place on the bus when it comes, a write when it is
drained from the queue, which is worked out when something comes later.

* **Bank**: the banks of one number in all bank groups are a set; an access of whole lines opens one row in each, and is
  looked up by the set. A row opens by precharge (if another one is open; tRAS, tRTP, tWR kept) and activate (tRP, tRC,
  tRRD, tFAW kept); its first column command is tRCD later. Data are on the bus tCL (tCWL) after a column command.
* **Bus**: half-duplex, a burst at a time (tCCD_S; two reads after one another in one bank group:
  tCCD_L, where none of another group waits). A read takes the first gaps between reads that have been placed (a
  controller that serves first what is ready). From reads to writes it turns by tRTW, back by tWTR and tCL.
* **Writes** wait in a queue of finite length. They are drained while the bus has nothing else to do, and down to half
  of the queue when it is full.
* **Refresh** of all banks, every tREFI: nothing for tRP + tRFC, then all rows are closed. Reads that were placed before
  go around it.

Limits: a read that has been placed is not moved for one that comes later; rows are opened in the order of arrival; the
command bus is not modelled; the whole of a refresh interval is kept, no refresh is postponed.
"""

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from sipsim.chips.ahbm.memory.ports import BusWitness
from sipsim.chips.ahbm.memory.presets import Preset

Ps = int
FOREVER: Ps = 1 << 62
LONG_AGO: Ps = -(1 << 62)


class Placed(NamedTuple):
    """Bursts on the bus from ``start_ps`` to ``end_ps``, in one piece or several. ``ready_ps``: when the first could
    have been there if the bus had been free, and nothing refreshed. ``refresh_ps``: what they waited for refresh."""

    start_ps: Ps
    end_ps: Ps
    ready_ps: Ps
    refresh_ps: Ps


class PseudoChannel:
    """``has_refresh``: whether there is refresh."""

    def __init__(self, preset: Preset, is_closed_page: bool, has_refresh: bool) -> None:
        self.witness: BusWitness | None = None
        self._timings = timings = preset.timings
        self._groups, self._banks_per_group = preset.groups, preset.banks_per_group
        self._is_closed_page = is_closed_page
        self._queue_bursts = preset.queue_bursts
        self._refi = timings.refi if has_refresh else FOREVER
        self._closed_ps = timings.rp + timings.rfc
        self._to_write_ps = max(timings.rtw + timings.cwl - timings.cl - timings.burst, 0)
        count = preset.groups * preset.banks_per_group
        self._rows: list[int | None] = [None] * count
        self._column_ps: list[Ps] = [0] * count
        self._precharge_ps: list[Ps] = [0] * count
        self._activate_ps: list[Ps] = [0] * count
        self._set_row: list[int | None] = [None] * preset.banks_per_group
        self._set_ready_ps: list[Ps] = [0] * preset.banks_per_group
        self._set_precharge_ps: list[Ps] = [0] * preset.banks_per_group
        self._acts: deque[Ps] = deque([LONG_AGO] * 4, 4)
        self._interval = 0
        self._reads: list[tuple[Ps, Ps]] = []
        self._floor_ps: Ps = 0
        self._end_ps: Ps = 0
        self._was_write = False
        self._last_group, self._next_in_group_ps = -1, 0
        self._queue: deque[list[int]] = deque()
        self._queued = 0

    def read(self, now_ps: Ps, bank: int, row: int, group: int, bursts: int) -> Placed:
        """Place a read of ``bursts``, the first of them in bank group ``group``, of one row a bank."""
        timings = self._timings
        if self._queue:
            self._drain(now_ps, 0)
        column_ps, opening_ps = self._open(now_ps, bank, row, group, bursts, timings.rcd_read)
        ready_ps = column_ps + timings.cl
        if group == self._last_group and self._end_ps <= ready_ps < self._next_in_group_ps:
            ready_ps = self._next_in_group_ps
        start_ps, end_ps, placing_ps = self._place(now_ps, ready_ps, bursts)
        self._last_group = (group + bursts - 1) % self._groups
        self._next_in_group_ps = end_ps - timings.burst + timings.ccd_l
        last_command_ps = end_ps - timings.burst - timings.cl
        self._used(bank, group, bursts, last_command_ps + timings.rtp)
        return Placed(start_ps, end_ps, ready_ps - opening_ps, opening_ps + placing_ps)

    def write(self, came_ps: Ps, now_ps: Ps, bank: int, row: int, group: int, bursts: int) -> Ps:
        """Take in a write whose data came from ``came_ps`` on and are here now; when all of it is in the queue."""
        self._queue.append([came_ps, bank, row, group, bursts])
        self._queued += bursts
        self._drain(now_ps, 0)
        if self._queued <= self._queue_bursts:
            return now_ps
        return self._drain(FOREVER, self._queue_bursts // 2)

    # --- banks ----------------------------------------------------------------------------------------------------

    def _open(self, now_ps: Ps, bank: int, row: int, group: int, bursts: int, rcd: Ps) -> tuple[Ps, Ps]:
        """Open the rows of an access; when its first column command may be given so that no later burst waits, and what
        that waited for refresh."""
        interval = now_ps // self._refi
        if interval > self._interval:
            self._interval = interval
            self._rows = [None] * len(self._rows)
            self._set_row = [None] * self._banks_per_group
        groups, per_group, burst = self._groups, self._banks_per_group, self._timings.burst
        is_whole = bursts >= groups and not group
        if is_whole and self._set_row[bank] == row:
            ready_ps = self._set_ready_ps[bank]
            return ready_ps if ready_ps > now_ps else now_ps, 0
        rows, ready_ps, refresh_ps = self._rows, LONG_AGO, 0
        for turn in range(groups if bursts > groups else bursts):
            at = (group + turn) % groups * per_group + bank
            if rows[at] != row:
                refresh_ps += self._activate(now_ps, at, row, rcd)
            ready_ps = max(ready_ps, self._column_ps[at] - turn * burst)
        if is_whole:
            self._set_row[bank], self._set_ready_ps[bank] = row, ready_ps
        return ready_ps if ready_ps > now_ps else now_ps, refresh_ps

    def _activate(self, now_ps: Ps, at: int, row: int, rcd: Ps) -> Ps:
        """Open a row; what that waits for refresh."""
        timings, acts, bank = self._timings, self._acts, at % self._banks_per_group
        free_ps = self._activate_ps[at]
        if self._rows[at] is not None:
            free_ps = max(free_ps, max(now_ps, self._precharge_ps[at], self._set_precharge_ps[bank]) + timings.rp)
        act_ps = max(now_ps, free_ps, acts[-1] + timings.rrd, acts[0] + timings.faw)
        since_ps, refresh_ps = act_ps % self._refi, 0
        if act_ps >= self._refi and since_ps < self._closed_ps:
            refresh_ps = self._closed_ps - since_ps
            act_ps += refresh_ps
        acts.append(act_ps)
        self._rows[at] = row
        self._set_row[bank] = None
        self._column_ps[at] = act_ps + rcd
        self._precharge_ps[at] = act_ps + timings.ras
        self._activate_ps[at] = act_ps + timings.rc
        return refresh_ps

    def _used(self, bank: int, group: int, bursts: int, precharge_ps: Ps) -> None:
        """The banks of an access may precharge from ``precharge_ps`` on, and do so with a closed page."""
        groups, per_group = self._groups, self._banks_per_group
        if bursts >= groups and not self._is_closed_page:
            if precharge_ps > self._set_precharge_ps[bank]:
                self._set_precharge_ps[bank] = precharge_ps
            return
        for turn in range(groups if bursts > groups else bursts):
            at = (group + turn) % groups * per_group + bank
            if precharge_ps > self._precharge_ps[at]:
                self._precharge_ps[at] = precharge_ps
            if self._is_closed_page:
                self._rows[at] = self._set_row[bank] = None
                self._activate_ps[at] = max(self._activate_ps[at], self._precharge_ps[at] + self._timings.rp)

    # --- the bus --------------------------------------------------------------------------------------------------

    def _place(self, now_ps: Ps, ready_ps: Ps, bursts: int) -> tuple[Ps, Ps, Ps]:
        """Give a read the first free time on the bus; its begin, its end, and what it waited for refresh."""
        reads, burst = self._reads, self._timings.burst
        while reads and reads[0][1] <= now_ps:
            del reads[0]
        at_ps = ready_ps if ready_ps > self._floor_ps else self._floor_ps
        if self._end_ps > now_ps:  # a gap of less than a burst would be of no use to anyone
            at_ps = self._end_ps - (self._end_ps - at_ps) // burst * burst
        if not reads:
            free_ps = self._past_refresh(at_ps)
            end_ps = free_ps + bursts * burst
            if end_ps <= self._next_refresh(free_ps):
                return free_ps, self._took(free_ps, end_ps), free_ps - at_ps
        pieces: list[tuple[Ps, Ps]] = []
        index = refresh_ps = 0
        while bursts:
            free_ps = self._past_refresh(at_ps)
            refresh_ps += free_ps - at_ps
            at_ps = free_ps
            while index < len(reads) and reads[index][1] <= at_ps:
                index += 1
            limit_ps = self._next_refresh(at_ps)
            if index < len(reads):
                first_ps, end_ps = reads[index]
                if first_ps <= at_ps:
                    at_ps = end_ps
                    continue
                limit_ps = min(limit_ps, first_ps)
            count = min((limit_ps - at_ps) // burst, bursts)
            if count <= 0:
                at_ps = limit_ps
                continue
            pieces.append((at_ps, at_ps + count * burst))
            at_ps += count * burst
            bursts -= count
        for piece in pieces:
            self._took(*piece)
        return pieces[0][0], at_ps, refresh_ps

    def _took(self, start_ps: Ps, end_ps: Ps) -> Ps:
        """Note a read on the bus, joined with those that it touches; its end."""
        if self.witness is not None:
            self.witness.took(start_ps, end_ps)
        took_until_ps, reads = end_ps, self._reads
        if end_ps > self._end_ps:
            self._end_ps, self._was_write = end_ps, False
        index = bisect_left(reads, (start_ps, end_ps))
        if index < len(reads) and reads[index][0] == end_ps:
            end_ps = reads.pop(index)[1]
        if index and reads[index - 1][1] == start_ps:
            reads[index - 1] = reads[index - 1][0], end_ps
        else:
            reads.insert(index, (start_ps, end_ps))
        return took_until_ps

    def _past_refresh(self, at_ps: Ps) -> Ps:
        """The earliest time from ``at_ps`` at which data may be on the bus: a refresh stops column commands, and the
        first ones after it wait for their rows."""
        command_ps = at_ps - self._timings.cl
        since_ps, stop_ps = command_ps % self._refi, self._closed_ps + self._timings.rcd_read
        if command_ps < self._refi or since_ps >= stop_ps:
            return at_ps
        return at_ps + stop_ps - since_ps

    def _next_refresh(self, at_ps: Ps) -> Ps:
        """Until when data may be on the bus from ``at_ps`` on."""
        cl = self._timings.cl
        return max((at_ps - cl) // self._refi + 1, 1) * self._refi + cl

    # --- writes ---------------------------------------------------------------------------------------------------

    def _drain(self, until_ps: Ps, least: int) -> Ps:
        """Write queued bursts until ``until_ps`` or until ``least`` are left; when there was room for all of them."""
        timings, queue, room_ps = self._timings, self._queue, LONG_AGO
        burst = timings.burst
        while queue and self._queued > least:
            came_ps, bank, row, group, bursts = queue[0]
            free_ps = self._end_ps if self._was_write else self._end_ps + self._to_write_ps
            if max(free_ps, came_ps + timings.cwl) + burst > until_ps:
                break
            column_ps, _ = self._open(came_ps, bank, row, group, bursts, timings.rcd_write)
            start_ps = self._past_refresh(max(free_ps, column_ps + timings.cwl))
            limit_ps = self._next_refresh(start_ps)
            count = min((min(until_ps, limit_ps) - start_ps) // burst, bursts, self._queued - least)
            if count <= 0:
                if limit_ps >= until_ps:
                    break
                self._end_ps = limit_ps
                continue
            end_ps = start_ps + count * burst
            if room_ps == LONG_AGO and self._queued - count <= self._queue_bursts:
                room_ps = end_ps - (self._queue_bursts - (self._queued - count)) * burst
            self._wrote(start_ps, end_ps)
            self._used(bank, group, bursts, end_ps + timings.wr)
            self._queued -= count
            if count == bursts:
                queue.popleft()
            else:
                queue[0][3:] = (group + count) % self._groups, bursts - count
        return room_ps

    def _wrote(self, start_ps: Ps, end_ps: Ps) -> None:
        if self.witness is not None:
            self.witness.took(start_ps, end_ps)
        self._end_ps, self._was_write = end_ps, True
        self._floor_ps = end_ps + self._timings.wtr + self._timings.cl
        self._reads.clear()
