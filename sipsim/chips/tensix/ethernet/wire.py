"""What crosses an Ethernet link between two cores: bytes for the far core's memory."""

from typing import NamedTuple

from sipsim.fabric.links.frames import Address, Body, Data, codec


class EthWrite(NamedTuple):
    """``data`` for ``address`` of the far core's L1; all of it is there when the packet arrives."""

    address: int
    data: bytes


@codec(EthWrite)
class _EthWriteBody(Body, tag=20):
    address: Address
    data: Data

    def payload(self) -> EthWrite:
        return EthWrite(self.address, self.data)
