"""Layer norm of the rows of a matrix, on all PEs of a SIP: simulated time, bandwidth, and error against float64.

    ahbm-launch --sips 1 -q scripts/benches/layer_norm.py --rows 4096 --columns 1024 --dtype f32

The bandwidth is that of the matrix read and written once; each PE reads its own copy of weights and biases besides.
"""

import numpy as np
from over_rows import measured_ns, report, sizes, tiles

EPSILON = 1e-5


def layer_norm(x_ptr, w_ptr, b_ptr, y_ptr, size, tl):
    """``(x - mean) / sqrt(variance + EPSILON) * w + b`` of each row, in f32."""
    w, b = tl.load(w_ptr, size.columns).to("f32"), tl.load(b_ptr, size.columns).to("f32")
    for at, x in tiles(x_ptr, size, tl):
        centred = x - tl.sum(x, axis=1, keep_dims=True) * (1 / size.columns)
        variance = tl.sum(centred * centred, axis=1, keep_dims=True) * (1 / size.columns)
        y = centred * tl.rsqrt(variance + EPSILON) * w + b
        tl.store_async(y_ptr + at, y.to(y_ptr.dtype))


def worker(rank, world_size, torch):
    """One launch on random values."""
    size, random = sizes(layer_norm.__doc__), np.random.default_rng(rank)
    shape = size.rows, size.columns
    x, y = (torch.zeros(*shape, dtype=size.dtype, dp=size.split) for _ in range(2))
    w, b = (torch.zeros(size.columns, dtype=size.dtype, dp=size.everywhere) for _ in range(2))
    x.copy_(torch.from_numpy(random.normal(size=shape) * 4 + 1))
    for each in (w, b):
        each.copy_(torch.from_numpy(random.normal(size=size.columns)))
    ns = measured_ns(torch, layer_norm, size, x, w, b, y, size)
    values, weight, bias = (each.numpy().astype(np.float64) for each in (x, w, b))
    exact = (values - values.mean(axis=1, keepdims=True)) / np.sqrt(values.var(axis=1, keepdims=True) + EPSILON)
    report("layer norm", size, ns, x.nbytes + y.nbytes, y.numpy(), exact * weight + bias)
