"""Where a process of a run may listen: in a private folder, over TCP with keys, or on loopback."""

import ipaddress
import os
import stat

from broker.security.keys import MemberKeys


def check_bind(endpoint: str, keys: MemberKeys | None, plain_loopback: bool = False) -> None:
    """Check that only members of the run can connect to ``endpoint``.

    Allowed are files in a folder of this user that no other user can enter, TCP with keys, and with ``plain_loopback``
    TCP on this host without keys. ZeroMQ mail allows that one; no engine listens so.

    Raises:
        ValueError: one line that says what to do.
    """
    scheme, found, place = endpoint.partition("://")
    if not found:
        raise ValueError(f"{endpoint}: no endpoint; write ipc://PATH, unix://PATH or tcp://ADDRESS:PORT")
    if scheme in ("ipc", "unix"):
        _check_folder(endpoint, place)
    elif keys is None and not is_loopback(endpoint):
        raise ValueError(
            f"{endpoint}: other hosts could connect without keys; "
            "let ahbm-launch or ahbm-broker make keys for the run, or listen on 127.0.0.1"
        )
    elif keys is None and not plain_loopback:
        raise ValueError(f"{endpoint}: every user of this host could connect without keys; give keys, or use ipc://")


def is_tcp(endpoint: str) -> bool:
    """Whether an endpoint may lead to another host."""
    return endpoint.startswith("tcp://")


def is_loopback(endpoint: str) -> bool:
    """Whether a TCP endpoint is reachable from this host only. False for host names other than ``localhost``."""
    host = endpoint.partition("://")[2].rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_folder(endpoint: str, path: str) -> None:
    if not path or path.startswith("@"):
        raise ValueError(f"{endpoint}: every user of this host could connect; name a file in a private folder")
    folder = os.path.dirname(path) or "."
    try:
        found = os.stat(folder)
    except OSError as error:
        raise ValueError(f"{endpoint}: cannot read {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{endpoint}: {folder} is not a folder")
    if found.st_uid != os.geteuid():
        raise ValueError(f"{endpoint}: {folder} belongs to user {found.st_uid}; use a folder of your own, mode 0700")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"{endpoint}: other users can enter {folder} (mode {mode:04o}); chmod it to 0700")
