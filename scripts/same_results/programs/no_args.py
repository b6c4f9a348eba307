"""An algorithm without ``kernel_args``."""


def kernel(t_ptr, tl):
    pass
