"""Op-log records of sends, receives and releases, and their replay in the second pass."""

import math

import numpy as np

from sipsim.chips.ahbm.pe.tcm import Array
from sipsim.core.dtypes import DTYPES
from sipsim.records.oplog import record_kind, shape_of
from sipsim.records.replay import READ, ReplayPe, replays

SEND = record_kind(
    "ipcq.send", "src", "dst", "space", "addr", "nbytes", "dir", "dtype", "shape", "sender_seq", "source"
)
RECV_FIELDS = ("recv_mode", "src", "dst", "space", "addr", "nbytes", "dir", "dtype", "shape", "consumer_seq")
RECV = record_kind("ipcq.recv", *RECV_FIELDS, "result", "dst_addr")
RELEASE = record_kind("ipcq.release", "dir", "consumer_seq", "handle")
NO_ADDRESS = "-"
RETURN_SLOT, COPY_TO_DST = "return_slot", "copy_to_dst"


@replays(SEND, values=READ)
def replay_send(
    pe: ReplayPe,
    _src: str,
    _dst: str,
    _space: str,
    address: int,
    nbytes: int,
    direction: str,
    _dtype: str,
    _shape: str,
    seq: int,
    source: str | int,
) -> bytes:
    """Send the bytes of the source, and return them."""
    data = pe.value(source).tobytes() if isinstance(source, str) else pe.read(source, nbytes)
    pe.send(address, seq, direction, data)
    return data


@replays(RECV, values=READ)
def replay_recv(
    pe: ReplayPe,
    _mode: str,
    _src: str,
    _dst: str,
    _space: str,
    address: int,
    nbytes: int,
    _direction: str,
    dtype: str,
    shape: str,
    consumer_seq: int,
    _result: str,
    dst_address: int | str,
) -> Array | None:
    """Return the message in the slot as an array, copied to ``dst_address`` if given; None if its size is wrong."""
    data, kind, dims = pe.message(address, consumer_seq - 1, nbytes), DTYPES[dtype].numpy, shape_of(shape)
    if len(data) != math.prod(dims) * kind.itemsize:
        return None
    if isinstance(dst_address, int):
        pe.write(dst_address, data)
    return np.frombuffer(data, kind).reshape(dims)


@replays(RELEASE)
def replay_release(_pe: ReplayPe, _direction: str, _consumer_seq: int, _handle: str) -> None:
    """Do nothing: a release changes no values."""
