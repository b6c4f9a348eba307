"""The broker's process: a ``Hub`` behind a ROUTER socket. It decides nothing itself."""

from broker.hub import Hub, Phase
from broker.wire import LAUNCHER, BadFrame, Channel, Failed, decode_for_broker, encode
from broker.zmq_mail import ZmqBroker


def run_broker(endpoint: str, size: int, channels: list[Channel]) -> int:
    """Serve one run of ``size`` SIPs; returns the exit code once every SIP has answered and the launcher knows.

    What is for the launcher waits until its first message: a ROUTER cannot send to whom it has not met.
    """
    hub = Hub(size, channels)
    mail = ZmqBroker(endpoint)
    for_launcher: list[bytes] = []
    launcher_is_here = False
    while hub.phase is not Phase.DONE or for_launcher:
        sender, frame = mail.receive()
        if sender is None:
            continue
        launcher_is_here = launcher_is_here or sender == LAUNCHER
        try:
            message = decode_for_broker(frame)
        except BadFrame as error:
            message = Failed("internal", f"the broker received {error}", "", 0)
        for to, answer in hub.handle(sender, message):
            if to == LAUNCHER:
                for_launcher.append(encode(answer))
            else:
                mail.send(to, encode(answer))
        while launcher_is_here and for_launcher:
            mail.send(LAUNCHER, for_launcher.pop(0))
    mail.close()
    return 0
