"""A script without a worker."""


def work(rank):
    pass
