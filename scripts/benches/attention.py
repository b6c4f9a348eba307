"""Self-attention of one head, on all PEs of a SIP: simulated time, and error against float64.

    ahbm-launch --sips 1 -q scripts/benches/attention.py --rows 1024 --columns 64 --dtype bf16

``--rows`` is the length of the sequence, ``--columns`` the width of the head. Queries are split over the PEs; each PE
has its own copy of keys and values, and works on ``--tile`` queries at a time. The bandwidth is that of the bytes that
all PEs read and write.
"""

import math

import numpy as np
from over_rows import measured_ns, report, sizes


def attention(q_ptr, k_ptr, v_ptr, o_ptr, size, tl):
    """``softmax(q k^T / sqrt(width)) v``: scores and softmax in f32, probabilities rounded to the type."""
    mine, width, itemsize = size.rows // size.programs, size.columns, q_ptr.dtype.itemsize
    first = (tl.program_id(1) * size.pes + tl.program_id(0)) * mine
    keys, values = tl.trans(tl.load(k_ptr, (size.rows, width))), tl.load(v_ptr, (size.rows, width))
    for row in range(first, first + mine, size.tile):
        q = tl.load(q_ptr + row * width * itemsize, (min(size.tile, first + mine - row), width))
        scores = tl.dot(q, keys) * (1 / math.sqrt(width))
        e = tl.exp(scores - tl.max(scores, axis=1, keep_dims=True))
        p = e / tl.sum(e, axis=1, keep_dims=True)
        o = tl.dot(p.to(q.dtype), values)
        tl.store_async(o_ptr + row * width * itemsize, o.to(q.dtype))


def worker(rank, world_size, torch):
    """One launch on random values."""
    size, random = sizes(attention.__doc__), np.random.default_rng(rank)
    shape = size.rows, size.columns
    q, o = (torch.zeros(*shape, dtype=size.dtype, dp=size.split) for _ in range(2))
    k, v = (torch.zeros(*shape, dtype=size.dtype, dp=size.everywhere) for _ in range(2))
    for each in (q, k, v):
        each.copy_(torch.from_numpy(random.normal(size=shape)))
    ns = measured_ns(torch, attention, size, q, k, v, o, size)
    queries, keys, values = (each.numpy().astype(np.float64) for each in (q, k, v))
    e = np.exp(queries @ keys.T / math.sqrt(size.columns))
    nbytes = q.nbytes + o.nbytes + size.programs * (k.nbytes + v.nbytes)
    report("attention", size, ns, nbytes, o.numpy(), e / e.sum(axis=1, keepdims=True) @ values)
