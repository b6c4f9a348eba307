"""The flags of the built-in job: a collective, its algorithms and groups, its data and sizes."""

import argparse

from launcher import flag_types
from sipsim.collectives.call.base import operators
from sipsim.core.dtypes import DEFAULT_DTYPE, DTYPES


def add_collective(group: "argparse._ArgumentGroup") -> None:
    """The flags of the built-in job, which have no effect with a script."""
    group.add_argument("--collective", metavar="NAME", help="what to run; see --list collectives (intercube)")
    group.add_argument(
        "--bytes", type=flag_types.list_of(flag_types.size), metavar="B[,B...]", help="size of a rank's tensor (64K)"
    )
    group.add_argument(
        "--n-elem",
        type=flag_types.list_of(flag_types.IntRange(1, flag_types.MOST_ELEMENTS)),
        metavar="N[,N...]",
        help="elements a cube, or a rank",
    )
    group.add_argument("-b", type=flag_types.size, metavar="MIN", help="sweep: smallest size")
    group.add_argument("-e", type=flag_types.size, metavar="MAX", help="sweep: largest size")
    factor = flag_types.IntRange(2, flag_types.MOST_ELEMENTS)
    group.add_argument("-f", type=factor, metavar="FACTOR", help="sweep: factor between sizes (2)")
    group.add_argument("--dtype", choices=list(DTYPES), default=DEFAULT_DTYPE, help=f"element type ({DEFAULT_DTYPE})")
    group.add_argument("--op", choices=operators(), default="sum", help="reduction (sum)")
    group.add_argument(
        "--group",
        default="",
        metavar="R,R,...",
        help="SIPs that take part; rows, columns or halves: in parallel (all)",
    )
    root = flag_types.IntRange(0, flag_types.MOST_SIPS - 1)
    group.add_argument("--root", type=root, metavar="R", help="its rank in the group (0)")
    group.add_argument("--layout", type=flag_types.shape, metavar="CxP", help="cubes and PEs that hold a tensor")
    group.add_argument(
        "--in-place",
        action="store_true",
        default=None,
        help="source and result are one tensor (where they can be)",
    )
    group.add_argument("--out-of-place", action="store_false", dest="in_place", default=None, help="two tensors")
    iters, warmup = (flag_types.IntRange(least, flag_types.MOST_ITERATIONS) for least in (1, 0))
    group.add_argument("-n", "--iters", type=iters, default=1, metavar="N", help="timed iterations (1)")
    group.add_argument("-w", "--warmup", type=warmup, default=0, metavar="N", help="untimed ones (0)")
