"""The job of a run: the built-in collective on seeded data, or a host script. Plain data."""

from typing import Any, Literal

import msgspec

from sipsim.core.dtypes import DEFAULT_DTYPE

Recording = Literal["data", "trace", "explain", "oplog", "records"]
"""What a rank can record in its artifact folder: the data of a script's collectives, for the launcher's check; its
sends and receives; its spans; its op log. ``records``: the op log, kept in memory."""


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user's request and the job have in common: either ``script`` (a path, or a module with ``as_module``) with
    its ``script_args``, or a collective with its types and iterations.
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
    records: tuple[Recording, ...] = ()


class JobRequest(Work, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a user asks of a run, by the names of the launcher's options; without a script, its chip kind checks it and
    makes the :class:`Job`.

    ``collective``: None for what the chip runs if none is named. Either ``sizes``, in bytes, or ``n_elems``
    is given. ``algorithm``: the names of ``--algorithm``, perhaps ``auto`` or ``all``; None: as the config says.
    ``group``, ``root``, ``layout`` (cubes and PEs) and ``in_place``: as their flags say, empty or None without.
    ``size_source``: what gave the sizes, for messages; ``has_default_size``: nothing did.
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
        """The names of ``--algorithm``; none: as the config says."""
        return self.algorithm or ()


class Job(Work, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the SIPs do: the script, or the ``collective``; empty for the default one.

    ``n_elems``: elements a cube, or of a unit of a collective over a group, one run each. The latter runs the
    ``algorithms`` of each size, one after the other, in all ``groups`` at the same time (their SIPs; empty: in that of
    all), from or to rank ``root`` of each, with tensors over ``layout``, cubes and PEs of each, ``in_place`` or not.
    ``is_auto``: the algorithms were chosen by their cost. ``notes``: lines for the user.
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
        """The job with what it has in common with its request, and more ``fields``."""
        return cls(**{name: getattr(request, name) for name in Work.__struct_fields__} | fields)
