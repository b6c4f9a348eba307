"""Packet log: a file of the packets that one SIP has sent, for restarted peers and for the SIP's own restart.

A record is a batch to a peer, or a mark: all packets sent before the time of a mark are in the records before it. Each
record's checksum continues the checksum of the record before it, and the first continues the checksum of the header,
which names plan and rank. So a record is valid only if all records before it are. When the file is opened, it is
truncated at the first record that is damaged or out of sequence. The log survives a crash of its process but not
of its host, as it is never synced. Packets that the file lacks are sent again by the restarted SIP, and not compared.

The new process of a restarted SIP writes a new file, which starts as a copy and replaces the old one. So an old process
that still runs on a disconnected host writes to a file that is no longer read.
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from broker.ids import MAX_FRAME_BYTES, MAX_PS, MAX_RANK
from broker.wire import BadFrame, PacketBatch, decode_for_sip
from sipsim.core.errors import ConfigError, OutputError
from sipsim.core.files import Folder
from sipsim.core.session import fingerprint

PACKET_LOGS = "sip-*.packets"
"""Pattern of the names of the packet logs of all ranks."""
MAGIC = b"ahbm packets "
FORMAT = b"2"
LONGEST_HEADER = 256
_HEAD = struct.Struct(">Ii")
"""Head of a record: bytes of the body, and the destination. Destination ``_MARK``: the body is a time in ps."""
_CRC = struct.Struct(">I")
_RECORD_BYTES = _HEAD.size + _CRC.size
_MARK = -1
_TIME = struct.Struct(">Q")
FLUSH_BYTES = 2**20
FLUSH_S = 0.2
"""Least time between writes of marks; writing every mark would dominate the cost of the log."""


class PacketLog:
    """The log of ``rank`` in ``folder``, opened for append. ``plan_digest`` must equal the digest in the file.

    ``logged``: by destination, :func:`fingerprint` of each packet that the file contained when it was opened.
    ``logged_ps``: the last mark in the file. ``notice``: a line about a damaged part that was cut off, or "".

    Raises:
        ConfigError: when the file belongs to another plan, or cannot be read or written.
    """

    def __init__(self, folder: str, rank: int, plan_digest: str) -> None:
        self._path = Path(folder) / f"sip-{rank}.packets"
        self._rank = rank
        self._header = b"%b%b %b %d\n" % (MAGIC, FORMAT, plan_digest.encode(), rank)
        self._crc = zlib.crc32(self._header)
        self.notice = ""
        self.logged: dict[int, list[bytes]] = {}
        self.logged_ps = 0
        self._earliest: dict[int, int] = {}
        self._unwritten: list[bytes] = []
        self._mark_ps: int | None = None
        self._unwritten_bytes = 0
        self._flushed_s = monotonic()
        try:
            with Folder(self._path.parent) as own:
                self._open(own)
        except OSError as error:
            raise ConfigError(f"{error.filename}: the packet log cannot be opened: {error.strerror}") from None

    def _open(self, folder: Folder) -> None:
        name = self._path.name
        try:
            self._fd, is_first = folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL), True
        except FileExistsError:
            self._fd, is_first = folder.open(name, os.O_RDWR), False
        try:
            self._end = self._read_predecessors()
            if not is_first:
                self._replace_file(folder)
        except OSError as error:
            os.close(self._fd)
            raise self._output_error(error) from None
        except BaseException:
            os.close(self._fd)
            raise

    def logged_counts(self) -> tuple[tuple[int, int, int], ...]:
        """The value of ``Join.logged``: (destination, packets, least arrival) of the packets in the file."""
        return tuple((dst, len(packets), self._earliest[dst]) for dst, packets in sorted(self.logged.items()))

    def append(self, dst: int, frame: bytes) -> None:
        """Record an encoded batch to ``dst``."""
        self._put_mark()
        self._put(dst, frame)
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
            OutputError: when writing fails, such as on a full disk; the records in the file stay valid.
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
        """Append the last mark if it is new. Earlier marks since the last batch are redundant and not written."""
        if self._mark_ps is not None:
            self._put(_MARK, _TIME.pack(self._mark_ps))
            self._mark_ps = None

    def _put(self, dst: int, body: bytes) -> None:
        head = _HEAD.pack(len(body), dst)
        self._crc = zlib.crc32(body, zlib.crc32(head, self._crc))
        self._unwritten += (head, _CRC.pack(self._crc), body)

    def batches(self, dst: int, first: int = 0) -> Iterator[bytes]:
        """Yield the frames of all batches to ``dst`` that contain packet ``first`` or a later packet, in order.

        Raises:
            OutputError: when the file was damaged since it was opened.
        """
        self.flush()
        end = len(self._header)
        for end, to, body, _ in self._records():  # noqa: B007
            if to == dst:
                batch = _decode_batch(body)
                if batch is not None and batch.first + len(batch.packets) > first:
                    yield body
        if end != self._end:
            what = f"the packet log is damaged at byte {end} of {self._end}, and SIP {dst} needs packets from it"
            raise OutputError(f"{self._path}: {what}; start the run again, or --resume a kept run")

    def close(self) -> None:
        """Write the buffered records and close the file."""
        self.flush()
        os.close(self._fd)

    def _output_error(self, error: OSError) -> OutputError:
        hint = "free disk space, or choose another folder by --run-dir, or by TMPDIR with --max-restarts"
        return OutputError(f"{self._path}: cannot write packets: {error.strerror}; {hint}")

    def _read_predecessors(self) -> int:
        """Restore state from the file; return the offset at which its last valid record ends."""
        found = os.pread(self._fd, LONGEST_HEADER, 0)
        if not found.startswith(self._header):
            if not self._header.startswith(found):
                raise ConfigError(f"{self._path}: {self._objection(found)}; the SIP then simulates from the start")
            os.ftruncate(self._fd, 0)
            return os.pwrite(self._fd, self._header, 0)
        end = len(self._header)
        for record_end, dst, body, crc in self._records():
            if not self._restore(dst, body):
                break
            end, self._crc = record_end, crc
        size = os.fstat(self._fd).st_size
        if size > end:
            what = f"damaged, or incomplete after a kill, at byte {end} of {size}"
            self.notice = f"{self._path}: the packet log is {what}; the SIP simulates later packets again"
        return end

    def _objection(self, found: bytes) -> str:
        """Return the reason to refuse a file with another header, and what to do."""
        header, newline, _ = found.partition(b"\n")
        words = header.removeprefix(MAGIC).split(b" ")
        if not header.startswith(MAGIC) or not newline or len(words) != 3:
            return "not a packet log, or a damaged one; move the file away"
        if words[0] != FORMAT:
            return "a packet log of another version, or a damaged one; move the file away"
        if words[2] != self._header.split()[-1]:
            return f"the packet log of another rank than {self._rank}; put the right file there, or move this file away"
        return "the packet log of another plan, or damaged; use the config and script of the run, or move the file away"

    def _replace_file(self, folder: Folder) -> None:
        with folder.replacing(self._path.name) as fd:
            for offset in range(0, self._end, FLUSH_BYTES):
                os.pwrite(fd, os.pread(self._fd, min(FLUSH_BYTES, self._end - offset), offset), offset)
            if os.fstat(fd).st_size != self._end:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            new_fd = os.dup(fd)
        os.close(self._fd)
        self._fd = new_fd

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

    def _records(self) -> Iterator[tuple[int, int, bytes, int]]:
        """Yield (end, destination, body, checksum) of every record up to the first invalid one."""
        size, offset, crc = os.fstat(self._fd).st_size, len(self._header), zlib.crc32(self._header)
        while offset + _RECORD_BYTES <= size:
            head = os.pread(self._fd, _RECORD_BYTES, offset)
            offset += _RECORD_BYTES
            length, dst = _HEAD.unpack_from(head)
            body = os.pread(self._fd, length, offset) if length <= min(size - offset, MAX_FRAME_BYTES) else b""
            crc = zlib.crc32(body, zlib.crc32(head[: _HEAD.size], crc))
            if len(body) != length or _CRC.unpack_from(head, _HEAD.size) != (crc,):
                return
            offset += length
            yield offset, dst, body, crc


def _decode_batch(body: bytes) -> PacketBatch | None:
    try:
        message = decode_for_sip(body)
    except BadFrame:
        return None
    return message if isinstance(message, PacketBatch) and message.packets else None
