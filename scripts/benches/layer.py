"""A transformer layer in tensor parallel over all SIPs, with and without overlap of its products and all-reduces.

    ahbm-launch --sips 4 --set 'sip.cube_mesh={w: 2, h: 1}' --algorithm bidirectional_ring \\
        --no-verify-data -q scripts/benches/layer.py

Llama-3 8B scaled: hidden size and feed-forward width divided by 16, heads and their width by 4, key-value heads by 2.
A SIP has its share of the heads and of the feed-forward columns; no norms, no residuals. Tokens come in sequences of
``--length``, a chunk of the batch has one a PE. For each chunk the PEs that multiply make queries, keys, values,
attention and the output product. Its all-reduce goes on while they work on the next chunk: the first ``--comm`` PEs of
each cube hold the sum and move it. And likewise for the feed-forward half.

The table has the times of all products alone, of all all-reduces alone, of both overlapped, and of the layer in one
chunk, each step after the other. What the dependences allow is the critical path of the chunks' graph with two
resources, each step as long as it was alone: that hides the sum of both parts less the path. The lines below follow the
steps that the overlapped run waited for, and say what they had beyond the path.
"""

import argparse
import math
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.host.layout import DPPolicy
from sipsim.core.arithmetic.operations import cast
from sipsim.core.dtypes import DTYPES

HIDDEN, HEADS, KEY_VALUE_HEADS, WIDTH, FFN = 256, 8, 4, 32, 896
BOUND = 2.0**-5
"""Of the error, relative to the largest value: roundings of bf16 in a row of products."""
PS_PER_US = 10**6
WEIGHTS = ("query", "key", "value", "output", "up", "gate", "down")


class Sizes(NamedTuple):
    """``comm``: PEs of a cube that move sums; the others multiply."""

    length: int
    chunks: int
    dtype: str
    comm: int
    cubes: int
    pes: int

    @property
    def programs(self) -> int:
        """PEs that multiply."""
        return self.cubes * (self.pes - self.comm)


class Rows(NamedTuple):
    """Of a kernel: length of a sequence, sequences of a PE, first PE of a cube and number of those that multiply."""

    length: int
    sequences: int
    first: int
    pes: int

    def starts(self, tl: Any) -> "list[int]":
        """The first row of each of this PE's sequences in the chunk."""
        index = tl.program_id(1) * self.pes + tl.program_id(0) - self.first
        return [(index * self.sequences + number) * self.length for number in range(self.sequences)]


def attention(x: Any, y: Any, query: Any, key: Any, value: Any, output: Any, rows: Rows, heads: int, tl: Any) -> None:
    """Attention over this PE's sequences by the ``heads`` of this SIP, which share a key-value head; their part of the
    output product.
    """
    shapes = (HIDDEN, heads * WIDTH), (HIDDEN, WIDTH), (HIDDEN, WIDTH), (heads * WIDTH, HIDDEN)
    wq, wk, wv, wo = loaded(tl, (query, key, value, output), shapes)
    for start in rows.starts(tl):
        tokens = tl.load(x + start * HIDDEN * x.dtype.itemsize, (rows.length, HIDDEN))
        q, k, v = (tl.dot(tokens, each).to(x.dtype) for each in (wq, wk, wv))
        scores = tl.dot(tl.reshape(q, (rows.length * heads, WIDTH)), tl.trans(k)) * (1 / math.sqrt(WIDTH))
        e = tl.exp(scores - tl.max(scores, axis=1, keep_dims=True))
        p = e / tl.sum(e, axis=1, keep_dims=True)
        o = tl.reshape(tl.dot(p.to(x.dtype), v).to(x.dtype), (rows.length, heads * WIDTH))
        tl.store_async(y + start * HIDDEN * x.dtype.itemsize, tl.dot(o, wo).to(x.dtype))


def feed_forward(y: Any, z: Any, up: Any, gate: Any, down: Any, rows: Rows, columns: int, tl: Any) -> None:
    """``(silu(y gate) * (y up)) down`` of this PE's tokens, by the ``columns`` of this SIP."""
    wu, wg, wd = loaded(tl, (up, gate, down), ((HIDDEN, columns), (HIDDEN, columns), (columns, HIDDEN)))
    for start in rows.starts(tl):
        tokens = tl.load(y + start * HIDDEN * y.dtype.itemsize, (rows.length, HIDDEN))
        g = tl.dot(tokens, wg)
        active = g / (tl.exp(-g) + 1) * tl.dot(tokens, wu)
        tl.store_async(z + start * HIDDEN * y.dtype.itemsize, tl.dot(active.to(y.dtype), wd).to(y.dtype))


def loaded(tl: Any, pointers: tuple[Any, ...], shapes: tuple[tuple[int, int], ...]) -> list[Any]:
    """Matrices, which come one behind the other."""
    coming = [tl.load_async(pointer, shape) for pointer, shape in zip(pointers, shapes, strict=True)]
    return [tl.wait(each) for each in coming]


class Layer:
    """One SIP's tensors of the layer, in ``chunks``, and its steps."""

    def __init__(self, torch: Any, group: Any, size: Sizes, chunks: int, tokens: Any, weights: dict[str, Any]) -> None:
        self._torch = torch
        self._cubes, self._pes = range(size.cubes), range(size.comm, size.pes)
        self.chunks = range(chunks)
        split = DPPolicy("row_wise", "row_wise", size.cubes, size.comm)

        def made(values: Any, layout: DPPolicy) -> Any:
            tensor = torch.zeros(values.shape, dtype=size.dtype, dp=layout)
            return tensor.copy_(torch.from_numpy(values))

        everywhere = DPPolicy("replicate", "replicate", size.cubes, size.pes)
        self._weights = {name: made(values, everywhere) for name, values in weights.items()}
        self.x = [made(part, split) for part in np.split(tokens, chunks)]
        self.y, self.z = ([made(np.zeros_like(part), split) for part in np.split(tokens, chunks)] for _ in range(2))
        self._group = group
        self._rows = Rows(size.length, size.chunks // chunks, size.comm, size.pes - size.comm)

    def attend(self, chunk: int) -> Any:
        """Start the attention half of a chunk."""
        weights = [self._weights[name] for name in ("query", "key", "value", "output")]
        heads = self._weights["query"].shape[1] // WIDTH
        return self._launch(attention, self.x[chunk], self.y[chunk], *weights, self._rows, heads)

    def feed(self, chunk: int) -> Any:
        """Start the feed-forward half of a chunk."""
        weights = [self._weights[name] for name in ("up", "gate", "down")]
        return self._launch(feed_forward, self.y[chunk], self.z[chunk], *weights, self._rows, weights[0].shape[1])

    def sum(self, tensor: Any) -> Any:
        """Start an all-reduce."""
        return self._torch.distributed.all_reduce(tensor, group=self._group, async_op=True)

    def _launch(self, kernel: Any, *args: object) -> Any:
        return self._torch.launch(kernel, *args, cubes=self._cubes, pes=self._pes, async_op=True)

    def products(self) -> list[Any]:
        """All products, one after the other, without sums."""
        return [waited(half(chunk)) for half in (self.attend, self.feed) for chunk in self.chunks]

    def sums(self) -> list[Any]:
        """All sums, one after the other, of whatever there is."""
        return [waited(self.sum(half[chunk])) for half in (self.y, self.z) for chunk in self.chunks]

    def in_order(self) -> list[Any]:
        """Each step after the other."""
        works = []
        for half, tensors in ((self.attend, self.y), (self.feed, self.z)):
            works += [waited(half(chunk)) for chunk in self.chunks]
            works += [waited(self.sum(tensors[chunk])) for chunk in self.chunks]
        return works

    def overlapped(self) -> list[Any]:
        """Each step as soon as what it needs is there. Launches on the same PEs wait for each other."""
        attended = [self.attend(chunk) for chunk in self.chunks]
        summed = [self.sum(self.y[chunk]) for chunk in self.chunks if waited(attended[chunk])]
        fed = [self.feed(chunk) for chunk in self.chunks if waited(summed[chunk])]
        return [*attended, *fed, *summed, *(self.sum(self.z[chunk]) for chunk in self.chunks if waited(fed[chunk]))]


def waited(work: Any) -> Any:
    """The work, once it has ended."""
    work.wait()
    return work


class Step(NamedTuple):
    """A launch in simulated time: ``kernels_ps`` of it were between the start of its first kernel and the last end."""

    start_ps: int
    end_ps: int
    kernels_ps: int

    @property
    def ps(self) -> int:
        """How long it took."""
        return self.end_ps - self.start_ps


def measured(torch: Any, run: Any) -> list[Step]:
    """The steps of a run that all ranks start at one time."""
    torch.distributed.start_together()
    works = run()
    torch.synchronize()
    return [Step(work.start_ps, work.end_ps, work.kernels_ps[1] - work.kernels_ps[0]) for work in works]


def total_ps(steps: list[Step]) -> int:
    """From the first start to the last end."""
    return max(step.end_ps for step in steps) - min(step.start_ps for step in steps)


def needs(chunks: int) -> list[list[int]]:
    """Of each step, in the order of ``overlapped``, those that must have ended: the one before on its PEs, and the one
    whose result it takes.
    """
    products, found = 2 * chunks, []
    for index in range(2 * products):
        kind, number = divmod(index, products)
        before = [index - 1] if number else []
        takes = [index - products] if kind else [number + chunks] if number >= chunks else []
        found.append(before + takes)
    return found


def critical_path_ps(lengths: list[int], graph: list[list[int]]) -> int:
    """The least time of all steps, each as long as given."""
    ends: dict[int, int] = {}

    def end(index: int) -> int:
        if index not in ends:
            ends[index] = max((end(before) for before in graph[index]), default=0) + lengths[index]
        return ends[index]

    return max(end(index) for index in range(len(lengths)))


def waited_for(steps: list[Step], graph: list[list[int]]) -> list[int]:
    """The steps that led to the last end, each the latest of those that the next one needed."""
    path = [max(range(len(steps)), key=lambda index: steps[index].end_ps)]
    while graph[path[-1]]:
        path.append(max(graph[path[-1]], key=lambda index: steps[index].end_ps))
    return path[::-1]


def report(layer: Layer, alone: list[Step], together: list[Step], plain: list[Step], said: str) -> None:
    """The table, and where the rest went."""
    chunks, products = len(layer.chunks), 2 * len(layer.chunks)
    graph, lengths = needs(chunks), [step.ps for step in alone]
    compute, comm = sum(lengths[:products]), sum(lengths[products:])
    least, took = critical_path_ps(lengths, graph), total_ps(together)
    allowed, hidden = compute + comm - least, compute + comm - took
    print(f"{said}: {chunks} chunks, each sum {layer.y[0].nbytes} B per SIP")
    rows = (
        ("products alone", compute),
        ("all-reduces alone", comm),
        ("one after the other", compute + comm),
        ("in one chunk, one after the other", total_ps(plain)),
        ("overlapped", took),
        ("hidden", hidden),
        ("allowed by the dependences", allowed),
    )
    for name, ps in rows:
        print(f"{name:<36}{ps / PS_PER_US:>10.3f} us")
    print(f"{'hidden of allowed':<36}{hidden / allowed:>10.1%}")
    path = waited_for(together, graph)
    extra = [together[index].ps - lengths[index] for index in path]
    gaps = took - sum(together[index].ps for index in path)
    launches = sum(alone[index].ps - alone[index].kernels_ps for index in path)
    other = sum(lengths[index] for index in path) - least
    print(f"beyond the critical path of {least / PS_PER_US:.3f} us, {launches / PS_PER_US:.3f} us of it launches:")
    rest = (
        ("products slower beside all-reduces", sum(ps for at, ps in zip(path, extra, strict=True) if at < products)),
        ("all-reduces slower beside products", sum(ps for at, ps in zip(path, extra, strict=True) if at >= products)),
        ("between steps", gaps),
        ("another path than the critical one", other),
    )
    for name, ps in rest:
        print(f"  {name:<34}{ps / PS_PER_US:>10.3f} us")


def expected(tokens: Any, weights: list[dict[str, Any]], length: int) -> tuple[Any, Any]:
    """The two sums in float64."""
    x, y, z = tokens.astype(np.float64).reshape(-1, length, HIDDEN), 0.0, 0.0
    wide = [{name: values.astype(np.float64) for name, values in each.items()} for each in weights]
    for each in wide:
        keys, values = x @ each["key"], x @ each["value"]
        queries = (x @ each["query"]).reshape(*x.shape[:2], -1, WIDTH)
        scores = np.einsum("bthw,bsw->bhts", queries, keys) / math.sqrt(WIDTH)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        o = np.einsum("bhts,bsw->bthw", e / e.sum(axis=-1, keepdims=True), values)
        y = y + o.reshape(*x.shape[:2], -1) @ each["output"]
    for each in wide:
        g = y @ each["gate"]
        z = z + (g / (np.exp(-g) + 1) * (y @ each["up"])) @ each["down"]
    return y.reshape(-1, HIDDEN), z.reshape(-1, HIDDEN)


def error_of(parts: list[Any], exact: Any) -> float:
    """The largest error of a tensor in chunks, relative to the largest value."""
    found = np.concatenate([part.numpy() for part in parts]).astype(np.float64)
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def sizes(torch: Any, world_size: int) -> Sizes:
    """Those of the command line, and of the SIPs.

    Raises:
        ValueError: for SIPs or PEs that cannot share the layer equally.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=64, help="of a sequence, in tokens")
    parser.add_argument("--chunks", type=int, default=4, help="chunks of the batch; each has one sequence per PE")
    parser.add_argument("--dtype", choices=("f16", "bf16"), default="bf16")
    parser.add_argument("--comm", type=int, default=2, help="PEs of each cube that move sums")
    system = torch._sip.plan.system
    found = Sizes(**vars(parser.parse_args()), cubes=system.n_cubes, pes=system.n_pes)
    if world_size != KEY_VALUE_HEADS:
        raise ValueError(f"the layer is for {KEY_VALUE_HEADS} SIPs, one a key-value head; --sips is {world_size}")
    if not 0 < found.comm < found.pes or (found.pes - found.comm) % found.comm:
        raise ValueError(f"--comm {found.comm}: the other PEs, of {found.pes}, must be a multiple of it")
    return found


def drawn(size: Sizes, ranks: int) -> tuple[Any, list[dict[str, Any]]]:
    """Tokens, and the weights of each SIP, as all ranks draw them."""
    random, dtype = np.random.default_rng(0), DTYPES[size.dtype]
    mine, columns = HEADS // ranks * WIDTH, FFN // ranks
    wide, narrow = (HIDDEN, columns), (columns, HIDDEN)
    shapes = (HIDDEN, mine), (HIDDEN, WIDTH), (HIDDEN, WIDTH), (mine, HIDDEN), wide, wide, narrow

    def matrix(shape: tuple[int, int]) -> Any:
        return cast(random.normal(size=shape) / math.sqrt(shape[0]), dtype)

    tokens = cast(random.normal(size=(size.chunks * size.programs * size.length, HIDDEN)), dtype)
    return tokens, [dict(zip(WEIGHTS, map(matrix, shapes), strict=True)) for _ in range(ranks)]


def worker(rank: int, world_size: int, torch: Any) -> None:
    """Measure the parts, the layer in one chunk and the layer overlapped; check what both leave."""
    size = sizes(torch, world_size)
    torch.distributed.init_process_group(backend="ahbm")
    movers = torch.distributed.new_group(pes=range(size.comm))
    tokens, weights = drawn(size, world_size)
    exact = expected(tokens, weights, size.length)
    layer, whole = (Layer(torch, movers, size, chunks, tokens, weights[rank]) for chunks in (size.chunks, 1))
    for each in (layer, whole):
        each.in_order()  # its pages are in the TLBs and its algorithm is wired from now on
    alone = measured(torch, layer.products) + measured(torch, layer.sums)
    plain = measured(torch, whole.in_order)
    together = measured(torch, layer.overlapped)
    pairs = [pair for each in (layer, whole) for pair in zip((each.y, each.z), exact, strict=True)]
    error = max(error_of(parts, wanted) for parts, wanted in pairs)
    if rank == 0:
        said = f"{len(tokens)} tokens, {HIDDEN} hidden, {FFN} feed-forward, {size.dtype}, {world_size} SIPs"
        report(layer, alone, together, plain, said)
        print(f"largest error {error:.1e} of {BOUND:.1e}")
    if not error <= BOUND:
        raise AssertionError(f"rank {rank}: error {error:.1e} is above {BOUND:.1e}")
