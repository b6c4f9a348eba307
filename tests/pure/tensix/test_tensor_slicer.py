"""Slices of the tensor slicer and packets of pages, over random tensors."""

import random
from itertools import chain
from math import prod

import pytest

from sipsim.chips.tensix.ccl.packets import packetize
from sipsim.chips.tensix.ccl.placement import Interleaved, MemoryConfig
from sipsim.chips.tensix.ccl.tensor_slicer import TensorSlicer
from sipsim.chips.tensix.ccl.tensors import Tensor, pages_of
from sipsim.chips.tensix.formats import FORMATS
from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse


@pytest.mark.parametrize("seed", range(40))
def test_slices_partition_the_tensor_at_equal_lines_and_fit(seed: int) -> None:
    draw = random.Random(seed)
    size, n_workers, most = draw.randint(1, 8), draw.randint(1, 9), draw.randint(1, 40)
    grid = [draw.randint(1, 7) for _ in range(draw.randint(1, 4))]
    dim = draw.randrange(len(grid))
    grid[dim] *= size
    slicer = TensorSlicer(n_workers, grid, dim, size, most)
    fractures = [[slicer.pages(each, fracture) for each in slicer.slices] for fracture in range(size)]
    assert sorted(chain(*chain(*fractures))) == list(range(prod(grid)))
    step = fractures[1][0][0] - fractures[0][0][0] if size > 1 else 0
    for number, fracture in enumerate(fractures):
        assert fracture == [[page + number * step for page in part] for part in fractures[0]], "other lines"
    outputs = [slicer.pages(each, None) for each in slicer.slices]
    assert sorted(chain(*outputs)) == list(range(prod(grid) // size))
    assert [len(each) for each in outputs] == [each.n_pages for each in slicer.slices]
    share = -(-prod(grid) // size // n_workers)
    assert all(1 <= each.n_pages <= min(most, share) for each in slicer.slices)
    of_workers = [slicer.of_worker(worker) for worker in range(n_workers)]
    assert sorted(chain(*of_workers)) == sorted(slicer.slices)
    assert all(each == slicer.slices[worker::n_workers] for worker, each in enumerate(of_workers))


def tensor(n_pages: int) -> Tensor:
    dtype, shape = FORMATS["bf16"], (n_pages * 32, 32)
    placement = Interleaved([Core(0, 0), Core(5, 5)], n_pages, 3, 1)
    return Tensor(shape, dtype, pages_of(shape, dtype), MemoryConfig(buffer_type="dram"), placement, 0)


@pytest.mark.parametrize("packet_bytes", [2048, 5000, 16384])
@pytest.mark.parametrize("n_pages", [1, 8, 29])
def test_packets_have_all_pages_in_order_and_only_the_last_is_short(n_pages: int, packet_bytes: int) -> None:
    one, other = tensor(n_pages), tensor(2 * n_pages)
    numbers = [2 * page + 1 for page in range(n_pages)]
    packets = packetize(((one.segments, range(n_pages)), (other.segments, numbers)), packet_bytes)
    for index, (each, pages) in enumerate(((one, range(n_pages)), (other, numbers))):
        places = [
            group.places[index]._replace(address=group.places[index].address + number * 2048)
            for packet in packets
            for group in packet.groups
            for number in range(group.pages)
        ]
        assert places == [each.place(page) for page in pages]
    full = packet_bytes // 2048
    assert [packet.pages for packet in packets[:-1]] == [full] * (len(packets) - 1)
    assert 1 <= packets[-1].pages <= full
    assert all(packet.nbytes == packet.pages * 2048 for packet in packets)


def test_a_page_that_fits_no_packet_is_refused() -> None:
    with pytest.raises(KernelMisuse, match="2048 B, more than a packet of 2047 B"):
        packetize(((tensor(1).segments, [0]),), 2047)
