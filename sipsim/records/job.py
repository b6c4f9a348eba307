"""The job of a run: the built-in collective on seeded data, or a host script. Plain data."""

from typing import Any, Literal

import msgspec

from sipsim.core.dtypes import DEFAULT_DTYPE
from sipsim.records.spawn_call import SpawnCall

Recording = Literal["data", "trace", "explain", "oplog", "records"]
"""Recordings of a rank in its artifact folder: ``data`` of a script's collectives, for the launcher's check; ``trace``
of sends and receives; spans (``explain``); ``oplog``. ``records``: the op log, in memory only."""


class JobOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options common to a user's request and the job: either ``script`` (a path, or a module if ``as_module``) with
    ``script_args``, or a collective with data type, operator and iterations. ``spawn``: the call of a worker by
    ``mp.spawn``; None for a script with ``worker(rank, world_size, torch)``.
    """

    dtype: str = DEFAULT_DTYPE
    op: str = "sum"
    iters: int = 1
    warmup: int = 0
    seed: int = 0
    verify_data: bool = True
    check_invariants: bool = False
    script: str | None = None
    as_module: bool = False
    script_args: tuple[str, ...] = ()
    spawn: SpawnCall | None = None
    records: tuple[Recording, ...] = ()


class JobRequest(JobOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A user's request for a run; fields are named as the launcher's options. Without a script, the chip kind checks
    the request and makes the :class:`Job`.

    ``collective``: None for the chip's default. Either ``sizes``, in bytes, or ``n_elems`` is given. ``algorithm``:
    the names of ``--algorithm``, or ``auto`` or ``all``; None if not given. ``group``, ``root``, ``layout`` (cubes
    and PEs) and ``in_place``: the values of these flags; "" or None if not given. ``size_source``: the origin of the
    sizes, for messages; ``has_default_size``: the user gave no sizes.
    """

    collective: str | None
    sizes: tuple[int, ...]
    n_elems: tuple[int, ...]
    size_source: str
    has_default_size: bool
    algorithm: tuple[str, ...] | None = None
    group: str = ""
    root: int | None = None
    layout: tuple[int, int] | None = None
    in_place: bool | None = None

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of ``--algorithm``; empty if the algorithm is taken from the config."""
        return self.algorithm or ()


class Job(JobOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The job that all SIPs run: a script, or a ``collective`` ("" for the default collective).

    ``n_elems``: per run, elements per cube, or per unit of a collective over a group. A collective over groups
    runs the ``algorithms`` of each size one after the other, in all ``groups`` at the same time. ``groups``: SIPs of
    each group; empty if all SIPs are one group. ``root``: root's rank in each group. ``layout``: cubes and PEs of the
    tensors. ``is_auto``: the algorithms were chosen by their cost. ``notes``: lines for the user.
    """

    collective: str = ""
    n_elems: tuple[int, ...] = ()
    algorithms: tuple[tuple[str, ...], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    root: int = 0
    layout: tuple[int, int] | None = None
    in_place: bool = False
    is_auto: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: JobRequest, **fields: Any) -> "Job":
        """Make a job from the common options of a request and further ``fields``."""
        return cls(**{name: getattr(request, name) for name in JobOptions.__struct_fields__} | fields)
