"""Softmax along the rows of a matrix, on all PEs of a SIP: simulated time, bandwidth, and error against float64.

    ahbm-launch --sips 1 -q scripts/benches/softmax.py --rows 4096 --columns 1024 --dtype f32

The bandwidth is that of the bytes read and written once.
"""

import numpy as np
from over_rows import measured_ns, report, sizes, tiles


def softmax(x_ptr, y_ptr, size, tl):
    """``exp(x - max) / sum`` of each row, in f32."""
    for at, x in tiles(x_ptr, size, tl):
        e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
        y = e * (1 / tl.sum(e, axis=1, keep_dims=True))
        tl.store_async(y_ptr + at, y.to(y_ptr.dtype))


def worker(rank, world_size, torch):
    """One launch on random values."""
    size = sizes(softmax.__doc__)
    shape = size.rows, size.columns
    x, y = (torch.zeros(*shape, dtype=size.dtype, dp=size.split) for _ in range(2))
    x.copy_(torch.from_numpy(np.random.default_rng(rank).normal(size=shape) * 4))
    ns = measured_ns(torch, softmax, size, x, y, size)
    values = x.numpy().astype(np.float64)
    exact = np.exp(values - values.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    report("softmax", size, ns, x.nbytes + y.nbytes, y.numpy(), exact)
