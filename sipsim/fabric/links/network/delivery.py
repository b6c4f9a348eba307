"""How each type of payload ends on its SIP: where its transfer lands, in which virtual channel, and what takes it.

A type of payload that a chip's frames may carry has one delivery. The network interface knows no payload by name.
"""

from abc import ABC, abstractmethod
from typing import Any

from sipsim.fabric.graph.graph import Node, Route

Ps = int


class BadPacket(Exception):
    """A packet that no SIP of the system can have sent. The message says why, after "a packet that came"."""


class Delivery(ABC):
    """The last part of the way of one type of payload. ``vc``: the virtual channel of its transfers."""

    vc: int

    @abstractmethod
    def wire_bytes(self, payload: Any) -> int:
        """Bytes of its frame on the wires of a SIP."""

    @abstractmethod
    def landing(self, payload: Any) -> Node:
        """The node where its transfer ends."""

    @abstractmethod
    def check(self, payload: Any) -> None:
        """Check that this SIP has what takes it.

        Raises:
            BadPacket: when it has not.
        """

    @abstractmethod
    def start(self, route: Route, payload: Any, nbytes: int, delay_ps: Ps = 0, span_ps: Ps = 0) -> None:
        """Carry a payload over the rest of its route, which ends at :meth:`landing`, and hand it over.

        ``nbytes`` on the wires; ``delay_ps`` and ``span_ps`` as in ``Fabric.start``.
        """
