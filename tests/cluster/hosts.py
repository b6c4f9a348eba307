"""Several hosts on one machine: each a set of namespaces with a network card, an address and a name of its own.

::

    head ─┐            head, h1 .. hN: own network, host name, /etc/hosts; 10.77.x.254, 10.77.x.1 .. N
    h1  ──┤ switch     h1 .. hN: own process ids too, so that a host that is switched off takes all it runs along
    ..    │            switch: a bridge in a network namespace of its own; a cable is cut there
    hN  ──┘

Not machines: they share the file system, the clock and the kernel. Nothing has a name outside: each host lives
as long as its first process, which ends with its standard input, so nothing can be left, even by a session
that was killed. Launchers run on ``head``, whose process ids are the machine's (``nsenter`` enters only
below its own).
"""

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PATH = os.pathsep.join(
    filter(None, [os.environ.get("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
)
"""Daemons are not on everybody's PATH, and ``env -i`` leaves none."""
WAIT_S = 20
"""Nobody needs as long; only for a test not to hang."""
HEAD = "head"
TOOLS = ("ip", "nft", "unshare", "nsenter", "setpriv", "mount", "hostname", "bash")
NAMESPACES = ("--net", "--uts", "--mount")
PROCESS_IDS = ("--pid", "--fork", "--kill-child", "--mount-proc")

FIRST_PROCESS = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
ip link set lo up
echo ready
read -r _ || :
"""
"""bash, because a first process must wait for what others left behind."""


def tool(name: str) -> str | None:
    """Where a program is."""
    return shutil.which(name, path=PATH)


def why_no_hosts() -> str:
    """Why hosts cannot be made on this machine; empty if they can."""
    if os.geteuid() != 0:
        return "not root, which network namespaces need"
    if lacking := [name for name in TOOLS if not tool(name)]:
        return f"not installed: {', '.join(lacking)}"
    try_out = [tool("unshare"), *NAMESPACES, *PROCESS_IDS, tool("ip"), "link", "add", "type", "veth"]
    done = subprocess.run(try_out, capture_output=True, text=True, timeout=WAIT_S)
    return f"no network namespaces here ({done.stderr.strip() or done.returncode})" if done.returncode else ""


class Inside(subprocess.Popen[Any]):
    """A program in another process-id namespace, whose parent here is nsenter: signals go to the program itself."""

    def send_signal(self, sig: int) -> None:
        # Were nsenter killed, its child would be left to the machine's first process, which may be slow to wait
        # for it, and the namespace would not end before that.
        if self.poll() is None:
            for pid in _children(self.pid) or [self.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sig)


class Host:
    """One of the hosts of :func:`namespace_hosts`. ``pid`` is that of its first process, as the machine counts."""

    def __init__(self, name: str, address: str, folder: Path, own_pids: bool = True) -> None:
        self.name, self.address = name, address
        self.cable = "", 0
        """The name of its port at the switch, and the pid of the switch."""
        self._own_pids = own_pids
        self._started: list[subprocess.Popen[Any]] = []
        self._services: set[int] = set()
        hosts_file = folder / f"hosts-{name}"
        unshare = ["unshare", *NAMESPACES, *(PROCESS_IDS if own_pids else ())]
        self._first = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *unshare, "bash", "-c", FIRST_PROCESS, "bash", name, str(hosts_file)],
            env={**os.environ, "PATH": PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._first.pid
        assert self._first.stdout.readline() == "ready\n", f"host {name} does not come up"
        if own_pids:
            (self.pid,) = _children(self._first.pid)

    def __repr__(self) -> str:
        return f"Host({self.name}, {self.address})"

    def argv(self, *argv: object) -> list[str]:
        """What runs ``argv`` on this host when it is run on the machine or on ``head``."""
        kinds = [*NAMESPACES, *(["--pid"] if self._own_pids else [])]
        # Whoever starts it, or nsenter, which stays as the parent in the case of own pids, takes it along.
        last_will = ["setpriv", "--pdeathsig", "KILL"]
        # To enter a mount namespace is to leave a chroot, but for --root.
        return ["nsenter", f"--target={self.pid}", *kinds, "--root", f"--wd={os.getcwd()}", *last_will, *map(str, argv)]

    def run(self, argv: Sequence[object], **options: Any) -> subprocess.Popen[Any]:
        """Start ``argv`` on this host; ``options`` are those of ``Popen``. It is killed with the host."""
        options.setdefault("env", dict(os.environ))
        options["env"].setdefault("PATH", PATH)
        process = (Inside if self._own_pids else subprocess.Popen)(self.argv(*argv), **options)
        self._started.append(process)
        return process

    def output(self, argv: Sequence[object], **options: Any) -> str:
        """What ``argv`` prints on this host; it must succeed."""
        process = self.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        try:
            said, complaint = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
        assert process.returncode == 0, f"{self.name}: {argv} ended with {process.returncode}: {said}{complaint}"
        return said

    def serve(self, argv: Sequence[object], **options: Any) -> subprocess.Popen[Any]:
        """Start a daemon (in the foreground), which is not among :meth:`processes`."""
        process = self.run(argv, stdin=subprocess.DEVNULL, **options)
        self._services.add(process.pid)
        return process

    def processes(self) -> dict[int, str]:
        """{pid, as the machine counts: command} of what runs here, without the kit's own processes.

        sshd's are the kit's: where a cable was cut it keeps a session whose program has ended long ago.
        """
        kits = {self.pid, self._first.pid, *self._services}
        kits.update(child for pid in self._services for child in _children(pid))
        if self._own_pids:
            kits.update(process.pid for process in self._started)
        network = os.readlink(f"/proc/{self.pid}/ns/net")
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in kits:
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{name}/ns/net") == network:
                        words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
                        if words and not words.startswith(b"sshd:"):
                            found[int(name)] = words.decode(errors="replace").strip()
        return found

    def left(self, grace_s: float = 2) -> dict[int, str]:
        """Those of :meth:`processes` that do not end within a moment."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    select.select([handle], [], [], grace_s)
                finally:
                    os.close(handle)
        return self.processes()

    def switch_off(self) -> None:
        """End the host and all its processes, without closing connections if its cable was cut before."""
        with contextlib.suppress(BrokenPipeError):
            self._first.stdin.close()
        for process in self._started:
            process.kill()
            process.wait(WAIT_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._started.clear()
        try:
            self._first.wait(WAIT_S)
        finally:
            self._first.kill()
            self._first.wait()
            self._first.stdout.close()


class Hosts(list[Host]):
    """The hosts ``h1`` to ``hN``, and ``head``, where launchers run."""

    def __init__(self, head: Host, hosts: Sequence[Host], folder: Path, network: str) -> None:
        super().__init__(hosts)
        self.head, self.folder, self.network = head, folder, network

    @property
    def names(self) -> str:
        """As ``--hosts`` takes them."""
        return ",".join(host.name for host in self)

    def cutter(self) -> Path:
        """A program that does :func:`cut` to a host."""
        lines = [f"{host.name}) exec nsenter -t {host.cable[1]} -n ip link set {host.cable[0]} down;;" for host in self]
        path = self.folder / "cut-host"
        path.write_text("\n".join(["#!/bin/sh", 'case "$1" in', *lines, "esac", "exit 1", ""]))
        path.chmod(0o700)
        return path


@contextlib.contextmanager
def namespace_hosts(count: int = 4, own_name: str = "", ipv6: bool = False) -> Iterator[Hosts]:
    """``count`` hosts and a head, cabled to one switch.

    With ``own_name`` (an address, such as Debian's ``127.0.1.1``) a host finds its own name there. With ``ipv6`` there
    is no IPv4 between them.
    """
    # Nobody outside can see the network; the number is for whoever reads two sessions' logs side by side.
    network = f"fd77:{os.getpid() % 9999}:" if ipv6 else f"10.77.{os.getpid() % 250 + 1}"
    dot = ":" if ipv6 else "."
    addresses = {f"h{i}": f"{network}{dot}{i}" for i in range(1, count + 1)} | {HEAD: f"{network}{dot}254"}
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        stack.callback(shutil.rmtree, folder)
        _write_hosts_files(folder, addresses, own_name)

        def host(name: str, own_pids: bool) -> Host:
            made = Host(name, addresses.get(name, ""), folder, own_pids)
            stack.callback(made.switch_off)
            return made

        switch = host("switch", own_pids=False)
        hosts = Hosts(host(HEAD, own_pids=False), [host(f"h{i}", True) for i in range(1, count + 1)], folder, network)
        _cable(switch, [hosts.head, *hosts])
        yield hosts


def _write_hosts_files(folder: Path, addresses: dict[str, str], own_name: str) -> None:
    for me in ("switch", *addresses):
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        lines += [f"{own_name if own_name and name == me else at} {name}" for name, at in addresses.items()]
        (folder / f"hosts-{me}").write_text("\n".join(lines) + "\n")


def _cable(switch: Host, hosts: Sequence[Host]) -> None:
    _in_network(switch.pid, "ip link add br0 type bridge\nip link set br0 up")
    for host in hosts:
        port = f"p-{host.name}"
        host.cable = port, switch.pid
        pair = f"ip link add {port} type veth peer name eth0 netns {host.pid}"
        _in_network(switch.pid, f"{pair} && ip link set {port} master br0 up")
        # Nobody else can have taken an address here: it need not be asked for.
        width = "/64 nodad" if ":" in host.address else "/24"
        _in_network(host.pid, f"ip addr add {host.address}{width} dev eth0 && ip link set eth0 up")


def _in_network(pid: int, script: str) -> str:
    done = subprocess.run(
        ["nsenter", f"--target={pid}", "--net", "sh", "-ec", script],
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, f"{script!r}: {done.stderr.strip()}"
    return done.stdout


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


# --- what can happen to a host --------------------------------------------------------------------------------


def cut(host: Host) -> None:
    """Pull its cable out."""
    port, switch = host.cable
    _in_network(switch, f"ip link set {port} down")


def cut_for(host: Host, seconds: float) -> None:
    """Cut it off beyond the switch for some time: nothing passes, and its card does not notice.

    With its cable out (:func:`cut`) a host also forgets its neighbours' addresses, and asks for each of them once
    a second only: TCP there is silent for up to 0.8 s longer than the cut (measured).
    """
    port, switch = host.cable
    _in_network(switch, f"ip link set {port} nomaster; sleep {seconds}; ip link set {port} master br0")


def drop_inbound(host: Host) -> None:
    """What it sends arrives, what is sent to it does not."""
    _filter(host, "drop")


def lose(host: Host, percent: int) -> None:
    """Lose so many of the packets that are sent to it, at random."""
    _filter(host, f"numgen random mod 100 < {percent} drop")


def heal(host: Host) -> None:
    """Undo all of :func:`cut`, :func:`drop_inbound` and :func:`lose`."""
    port, switch = host.cable
    _in_network(switch, f"ip link set {port} up")
    _in_network(host.pid, "nft flush ruleset")


def _filter(host: Host, verdict: str) -> None:
    _in_network(
        host.pid,
        "nft flush ruleset && nft 'add table inet kit; add chain inet kit in { type filter hook input priority 0; };"
        f" add rule inet kit in iifname eth0 {verdict.replace('drop', 'counter drop')}'",
    )


def dropped(host: Host) -> int:
    """How many packets :func:`drop_inbound` or :func:`lose` has dropped."""
    rules = _in_network(host.pid, "nft list ruleset")
    return int(rules.split("counter packets ")[1].split()[0])
