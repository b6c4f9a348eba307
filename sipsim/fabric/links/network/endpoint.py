"""Where packets from other SIPs arrive: frames at their port, control records at what takes them."""

from collections.abc import Callable, Mapping
from typing import Any

from broker.ids import Channel
from broker.wire import BadFrame
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.links.frames import Frame, decode
from sipsim.fabric.links.kind.port import Port
from sipsim.fabric.links.network.delivery import BadPacket
from sipsim.fabric.links.network.router import Router

TakeControl = Callable[[int, Any], None]
"""Takes the channel that a control record came by, and the record. Raises ``BadPacket`` for an impossible one."""


class Endpoint:
    """The receiving side of SIP ``sip``. ``ports``: by the channel that arrives there; ``controls``: by record type."""

    def __init__(
        self,
        sip: int,
        engine: Engine,
        channels: list[Channel],
        ports: Mapping[int, Port],
        router: Router,
        controls: Mapping[type, TakeControl],
    ) -> None:
        self._sip = sip
        self._engine = engine
        self._channels = channels
        self._ports = ports
        self._router = router
        self._controls = controls

    def receive(self, channel: int, body: bytes) -> None:
        """A packet's last byte is here.

        Raises:
            InvariantViolation: for one that no SIP of this system can have sent.
        """
        try:
            packet = decode(body)
            if type(packet) is Frame:
                port = self._ports.get(channel)
                if port is None:
                    raise BadPacket(f"is a message, and no link to SIP {self._sip} has that channel")
                if type(packet.payload) not in port.own_payloads:
                    self._router.check(port.node, packet, self._engine.now_ps)
            else:
                take = self._controls.get(type(packet))
                if take is None:
                    raise BadPacket(f"is a {type(packet).__name__}, which this chip does not take")
                take(channel, packet)
                return
        except BadFrame as error:
            raise self._refused(channel, f"is {error}") from None
        except BadPacket as error:
            raise self._refused(channel, str(error)) from None
        port.receive(packet)

    def _refused(self, channel: int, what: str) -> InvariantViolation:
        known = self._channels[channel] if channel < len(self._channels) else None
        name, sender = (f"{channel}, which is none", None) if known is None else (known.name, known.src)
        return InvariantViolation(f"a packet on channel {name} that came to SIP {self._sip} {what}", rank=sender)
