"""A host script: one command on the first of two PEs, and what the other does for it. Arguments: the name of the
command, elements, the first PE's cube and number, and its direction to the other and back. Not a test.
"""

import sys


def worker(rank, world_size, torch):
    values = torch.zeros((16, 4096), dtype="f16")
    torch.launch(kernel, values, *sys.argv[1:])


def kernel(values, command, n_elem, sender, direction, back, tl):
    n_elem = int(n_elem)
    address = values + tl.program_id(1) * 4096 * 2
    if tl.rank() != int(sender):
        if command in ("send", "send from HBM"):
            tl.release(tl.recv(back, n_elem, "f16"))
    elif command == "load":
        tl.load(address, n_elem)
    elif command == "store":
        tl.store(address, tl.zeros(n_elem, "f16"))
    elif command == "send":
        tl.send(direction, tl.zeros(n_elem, "f16"))
    elif command == "send from HBM":
        tl.send(direction, src_addr=address, shape=n_elem, dtype="f16")
    elif command == "math":
        tl.exp(tl.zeros(n_elem, "f32"))
    elif command == "delay":
        tl.delay(n_elem)
