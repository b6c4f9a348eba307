"""Tenstorrent's systems, and rings and lines of such chips. Port ``ethN`` of a SIP is Ethernet channel ``N`` of a chip.

Sources: for numbers of chips and links, the CCL developer guide, "Topology and connectivity"; for channels, the cluster
descriptors among the tests of tt-umd (``wormhole_N300``, ``6u_cluster_desc``, ``blackhole_8xP150``) and of tt-metal
(``t3k_cluster_desc``). Docstrings state all assumptions.
"""

from collections.abc import Iterable, Iterator

from sipsim.config.schema import Sips
from sipsim.topology.links import Shape, SipLink, both_directions, topology

TO_REMOTE, FROM_LOCAL = 8, 0
"""First channels on an N300 board: the local chip's to the remote chip, and the remote chip's to the local chip."""
N_LINKS, N_LINKS_OF_GALAXY = 2, 4

Join = tuple[int, int, int, int]
"""Neighbours: a chip, its first channel to the neighbour, the neighbour, and the neighbour's first channel back."""

BOARD_OF_N300 = ((0, 1),)
BOARDS_OF_T3000 = tuple((local, local + 4) for local in range(4))
"""Local and remote chip of each N300 board."""
ROWS_OF_T3000 = ((4, 0, 3, 7), (5, 1, 2, 6))
BETWEEN_BOARDS: tuple[Join, ...] = (
    (0, 14, 1, 14),
    (1, 0, 2, 0),
    (3, 14, 2, 14),
    (0, 6, 3, 6),
    (4, 6, 5, 6),
    (7, 6, 6, 6),
)
ChannelPair = tuple[int, int]
BLACKHOLE_8: tuple[tuple[int, ChannelPair, int, ChannelPair], ...] = (
    (0, (4, 6), 1, (9, 11)),
    (0, (9, 11), 2, (4, 6)),
    (2, (9, 11), 3, (4, 6)),
    (4, (4, 6), 5, (9, 11)),
    (4, (9, 11), 6, (4, 6)),
    (6, (9, 11), 7, (4, 6)),
    (1, (4, 6), 5, (4, 6)),
    (0, (5, 7), 4, (5, 7)),
    (2, (8, 10), 6, (8, 10)),
    (3, (9, 11), 7, (9, 11)),
)
ROWS_OF_BLACKHOLE_8 = ((1, 0, 2, 3), (5, 4, 6, 7))
GALAXY: Shape = (8, 4)
WORMHOLE, BLACKHOLE = "wormhole", "blackhole"
"""Names of chip kinds."""


def port_of(channel: int) -> str:
    """Return the name of the port that is an Ethernet channel."""
    return f"eth{channel}"


def _side_by_side(joins: Iterable[Join], n_links: int) -> Iterator[SipLink]:
    for a, a_channel, b, b_channel in joins:
        for number in range(n_links):
            yield from both_directions(a, port_of(a_channel + number), b, port_of(b_channel + number))


def _to_remotes(pairs: Iterable[tuple[int, int]]) -> Iterator[Join]:
    for local, remote in pairs:
        yield local, TO_REMOTE, remote, FROM_LOCAL


def _remote(boards: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(remote for _, remote in boards)


@topology("n300", dimensions=1, size=(2, 1), chip=WORMHOLE, remote=_remote(BOARD_OF_N300))
def n300(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """An N300 board: 2 Wormhole chips, 2 links; SIP 0 is the local chip.

    One link is reserved for the dispatcher (the guide); :func:`~sipsim.topology.links.reserved_ports` says which.
    """
    return _side_by_side(_to_remotes(BOARD_OF_N300), N_LINKS)


@topology("t3000", dimensions=1, size=(8, 1), chip=WORMHOLE, rows=ROWS_OF_T3000, remote=_remote(BOARDS_OF_T3000))
def t3000(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A T3000: four N300 boards, 8 Wormhole chips in a 2x4 mesh, 2 links between neighbours.

    SIPs 0 to 3 are the local chips, 4 to 7 the remote chips, numbered as in the guide, whose ring of eight is 0, 4, 5,
    1, 2, 6, 7, 3: the rows of the mesh are 4, 0, 3, 7 and 5, 1, 2, 6. The descriptor numbers differ: its chips 2 and 3
    are the guide's 3 and 2, its 6 and 7 are 7 and 6. Links are reserved as on an N300 board.
    """
    return _side_by_side((*_to_remotes(BOARDS_OF_T3000), *BETWEEN_BOARDS), N_LINKS)


def _galaxies(shape: Shape, wraps: bool) -> Iterator[Join]:
    """Yield the pairs of neighbours. A chip's channels 8 to 11 lead towards the middle of its Galaxy's row and 12 to 15
    towards the middle of the column; channels 4 to 7 lead away in the row, 0 to 3 in the column, also to the next
    Galaxy.
    """
    width, height = shape
    middle_x, middle_y = GALAXY[0] // 2, GALAXY[1] // 2
    for chip in range(width * height):
        x, y = chip % width, chip // width
        if wraps or x + 1 < width:
            onward = (x + 1) % width
            channels = (8 if x % GALAXY[0] < middle_x else 4), (4 if onward % GALAXY[0] < middle_x else 8)
            yield chip, channels[0], chip - x + onward, channels[1]
        if wraps or y + 1 < height:
            onward = (y + 1) % height
            channels = (12 if y % GALAXY[1] < middle_y else 0), (0 if onward % GALAXY[1] < middle_y else 12)
            yield chip, channels[0], onward * width + x, channels[1]


@topology("galaxy", dimensions=2, size=GALAXY, chip=WORMHOLE, is_block=True)
def galaxy(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A Galaxy: 32 Wormhole chips in a mesh of 8 columns x 4 rows, 4 links between neighbours. A shape of multiples of
    8x4, such as 16x4, is a mesh of several Galaxies, joined by the free channels of their edges.

    SIPs are numbered row by row, 8 per row of a Galaxy; the descriptor has other numbers. Assumed: a channel at the
    edge of a Galaxy connects to the same channel number of the next one, such as 4.
    """
    return _side_by_side(_galaxies(shape, wraps=False), N_LINKS_OF_GALAXY)


@topology("galaxy_torus", dimensions=2, size=GALAXY, chip=WORMHOLE, is_block=True)
def galaxy_torus(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """A Galaxy, or a mesh of several, whose free channels close its rows and columns to rings.

    The guide states that the rings can be closed. Assumed: as for a mesh of several Galaxies.
    """
    return _side_by_side(_galaxies(shape, wraps=True), N_LINKS_OF_GALAXY)


@topology("blackhole_8", dimensions=1, size=(8, 1), chip=BLACKHOLE, rows=ROWS_OF_BLACKHOLE_8)
def blackhole_8(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """8 Blackhole chips (P150 cards) in a 2x4 mesh, 2 links between neighbours.

    SIPs are numbered as in the descriptor: the rows are 1, 0, 2, 3 and 5, 4, 6, 7. Assumed: no link is reserved.
    """
    for a, a_channels, b, b_channels in BLACKHOLE_8:
        for a_channel, b_channel in zip(a_channels, b_channels, strict=True):
            yield from both_directions(a, port_of(a_channel), b, port_of(b_channel))


def _onward(sips: Sips, wraps: bool) -> Iterator[SipLink]:
    pairs = ((sip, (sip + 1) % sips.count) for sip in range(sips.count if wraps else sips.count - 1))
    return _side_by_side(_to_remotes(pair for pair in pairs if pair[0] != pair[1]), sips.num_links or 1)


@topology("tt_line", dimensions=1, takes_num_links=True, chip=WORMHOLE)
def tt_line(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """``count`` chips in a line, ``system.sips.num_links`` between neighbours (default 1).

    Assumed: channels from 8 on lead to the next chip's channels from 0 on, as on an N300 board.
    """
    return _onward(sips, wraps=False)


@topology("tt_ring", dimensions=1, takes_num_links=True, chip=WORMHOLE)
def tt_ring(sips: Sips, shape: Shape) -> Iterator[SipLink]:
    """``tt_line`` closed to a ring; two chips are joined twice."""
    return _onward(sips, wraps=True)
