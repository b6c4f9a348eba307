"""The log on disk of the packets that one SIP has sent: for peers that restart, and for its own successor.

A file of checksummed records: a batch to a peer, or a mark. A mark at ``t`` means that all packets sent before ``t``
are above it. A torn record at the end is truncated when the file is opened. The log survives the death of its process,
not that of its machine: it is never synced. Packets sent after the last flush may be missing; the successor sends
them again without a comparison.

A successor writes a new file, which starts as a copy and replaces the old one: a predecessor that still runs on a host
that was cut off then writes to a file that is no longer read.
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from time import monotonic

from broker.ids import MAX_PS, MAX_RANK
from broker.wire import BadFrame, PacketBatch, decode_for_sip
from sipsim.errors import ConfigError, OutputError

MAGIC = b"ahbm packets 1 "
_RECORD = struct.Struct(">IIi")
"""Bytes of the body, its CRC-32, and the destination; ``_MARK`` for a mark, whose body is a time in ps."""
_KEY = struct.Struct(">IQ")
_MARK = -1
_TIME = struct.Struct(">Q")
FLUSH_BYTES = 2**20
FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
FLUSH_S = 0.2
"""Writing at every mark would dominate the cost of the log."""


class PacketLog:
    """The log of ``rank`` in ``folder``, opened for append. ``plan_digest`` must equal that in the file.

    ``logged``: by destination, :func:`fingerprint` of all packets in the file when it was opened. ``logged_ps``: its
    last mark.

    Raises:
        ConfigError: when the file is of another plan, or cannot be read or written.
    """

    def __init__(self, folder: str, rank: int, plan_digest: str) -> None:
        self._path = Path(folder) / f"sip-{rank}.packets"
        self._header = MAGIC + plan_digest.encode() + b"\n"
        self.logged: dict[int, list[bytes]] = {}
        self.logged_ps = 0
        self._earliest: dict[int, int] = {}
        self._unwritten: list[bytes] = []
        self._mark_ps: int | None = None
        self._unwritten_bytes = 0
        self._flushed_s = monotonic()
        try:
            is_first = not self._path.exists()
            self._fd = os.open(self._path, FLAGS, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._path}: the packet log cannot be opened: {error.strerror}") from None
        try:
            self._end = self._read_predecessors()
            if not is_first:
                self._replace_file()
        except OSError as error:
            os.close(self._fd)
            raise self._output_error(error) from None
        except BaseException:
            os.close(self._fd)
            raise

    def logged_counts(self) -> tuple[tuple[int, int, int], ...]:
        """``Join.logged``: (destination, packets, least arrival) of what was in the file."""
        return tuple((dst, len(packets), self._earliest[dst]) for dst, packets in sorted(self.logged.items()))

    def append(self, dst: int, frame: bytes) -> None:
        """Record an encoded batch to ``dst``."""
        self._put_mark()
        self._unwritten += (_RECORD.pack(len(frame), zlib.crc32(frame), dst), frame)
        self._unwritten_bytes += len(frame)
        if self._unwritten_bytes >= FLUSH_BYTES:
            self.flush()

    def mark(self, time_ps: int) -> None:
        """Record that all packets sent before ``time_ps`` have been appended."""
        self._mark_ps = time_ps
        if monotonic() - self._flushed_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write the buffered records.

        Raises:
            OutputError: when the disk is full; the records in the file stay whole.
        """
        self._put_mark()
        if not self._unwritten:
            return
        self._flushed_s = monotonic()
        data = memoryview(b"".join(self._unwritten))
        self._unwritten.clear()
        self._unwritten_bytes = 0
        while data:
            try:
                written = os.pwrite(self._fd, data, self._end)
            except OSError as error:
                raise self._output_error(error) from None
            self._end += written
            data = data[written:]

    def _put_mark(self) -> None:
        """Append the last mark; marks before it with no batch between are redundant."""
        if self._mark_ps is not None:
            body = _TIME.pack(self._mark_ps)
            self._unwritten += (_RECORD.pack(len(body), zlib.crc32(body), _MARK), body)
            self._mark_ps = None

    def batches(self, dst: int, first: int = 0) -> Iterator[bytes]:
        """The frames of all batches to ``dst`` that contain packet ``first`` or a later one, in order."""
        self.flush()
        for _, to, body in self._records(len(self._header)):
            if to == dst:
                batch = _decode_batch(body)
                if batch is not None and batch.first + len(batch.packets) > first:
                    yield body

    def close(self) -> None:
        """Write the buffered records and close the file."""
        self.flush()
        os.close(self._fd)

    def _output_error(self, error: OSError) -> OutputError:
        where = "make room there, or choose another folder by --run-dir, or by TMPDIR with --max-restarts"
        return OutputError(f"{self._path}: packets cannot be kept: {error.strerror}; {where}")

    def _read_predecessors(self) -> int:
        """Restore state from the file; the offset at which its last whole record ends."""
        header = os.pread(self._fd, len(self._header), 0)
        if header != self._header:
            if header[: len(MAGIC)] == MAGIC and header.endswith(b"\n"):
                raise ConfigError(f"{self._path}: the packet log is of another plan; resume with what began the run")
            if header and not self._header.startswith(header):
                raise ConfigError(f"{self._path}: not a packet log; move it away")
            os.ftruncate(self._fd, 0)
            return os.pwrite(self._fd, self._header, 0)
        end = len(header)
        for record_end, dst, body in self._records(end):
            if not self._restore(dst, body):
                break
            end = record_end
        return end

    def _replace_file(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fd = os.open(temporary, FLAGS | os.O_TRUNC, 0o600)
        try:
            for at in range(0, self._end, FLUSH_BYTES):
                os.pwrite(fd, os.pread(self._fd, min(FLUSH_BYTES, self._end - at), at), at)
            if os.fstat(fd).st_size != self._end:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.replace(temporary, self._path)
        except OSError:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd = fd

    def _restore(self, dst: int, body: bytes) -> bool:
        if dst == _MARK and len(body) == _TIME.size:
            (time_ps,) = _TIME.unpack(body)
            if time_ps > MAX_PS:
                return False
            self.logged_ps = time_ps
            return True
        batch = _decode_batch(body)
        if batch is None or batch.first != len(self.logged.get(dst, ())) or not 0 <= dst <= MAX_RANK:
            return False
        packets = self.logged.setdefault(dst, [])
        packets += map(fingerprint, batch.packets)
        least = min(arrival for _, arrival, _ in batch.packets)
        self._earliest[dst] = min(self._earliest.get(dst, least), least)
        return True

    def _records(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        """(end, destination, body) of every whole record from offset ``start`` on."""
        size = os.fstat(self._fd).st_size
        while start + _RECORD.size <= size:
            length, crc, dst = _RECORD.unpack(os.pread(self._fd, _RECORD.size, start))
            body = os.pread(self._fd, length, start + _RECORD.size) if start + _RECORD.size + length <= size else b""
            if len(body) != length or zlib.crc32(body) != crc:
                return
            start += _RECORD.size + length
            yield start, dst, body


def fingerprint(packet: tuple[int, int, bytes]) -> bytes:
    """64 bits of a packet: BLAKE2b of its channel, arrival and body."""
    channel, arrival_ps, body = packet
    return blake2b(body, digest_size=8, key=_KEY.pack(channel, arrival_ps)).digest()


def _decode_batch(body: bytes) -> PacketBatch | None:
    try:
        message = decode_for_sip(body)
    except BadFrame:
        return None
    return message if isinstance(message, PacketBatch) and message.packets else None
