"""A ticket: everything that a process on another machine needs to take part in a run, as one text of JSON.

A SIP that is started by hand gets one with its seat, an agent one without: its SIPs get their seats one by one.
Nothing in it is code: the config, the job, the folder to change to and where to import from. A ticket with keys is as
good as the keys, so files are written for their owner alone and read only when nobody else can.
"""

import os
import stat
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from sipsim import VERSION
from sipsim.config.model import Resolved
from sipsim.errors import ConfigError
from sipsim.host.script import find_script
from sipsim.node.process_spec import SipProcessSpec
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan

Kind = TypeVar("Kind")


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``folder``: where to run, if it exists there. ``paths``: where else to import from."""

    version: str
    config: Resolved
    job: Job
    folder: str = ""
    paths: tuple[str, ...] = ()
    spec: SipProcessSpec | None = None

    @staticmethod
    def of(plan: Plan, job: Job, spec: SipProcessSpec | None = None) -> "Ticket":
        """The ticket of a run that is prepared in this process."""
        ours = tuple(path for path in sys.path if path and not path.startswith((sys.prefix, sys.base_prefix)))
        return Ticket(version=VERSION, config=plan.resolved, job=job, folder=os.getcwd(), paths=ours, spec=spec)

    def text(self) -> str:
        """As JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_text(text: str, where: str = "the ticket") -> "Ticket":
        """The reverse, checked.

        Raises:
            ConfigError: when it is no ticket, or one of another version.
        """
        return of_this_version(text, Ticket, where, "is no ticket")

    def prepare(self) -> tuple[Plan, Job]:
        """Change to its folder and make the plan.

        Raises:
            ConfigError: when the plan cannot be made here, or the script is not here.
        """
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [path for path in self.paths if path not in sys.path]
        if self.job.script is not None:
            find_script(self.job.script, self.job.as_module)
        return Plan(self.config), self.job


class _Version(msgspec.Struct):
    version: str


def of_this_version(text: str, kind: type[Kind], where: str, otherwise: str) -> Kind:
    """A struct with a ``version`` from its JSON, which must be of this one: that is looked at first.

    Raises:
        ConfigError: when it is of another version, or the text at ``where`` is something else.
    """
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != VERSION:
            raise ConfigError(f"{where} was written by version {version}, this is {VERSION}; install one version")
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} {otherwise} of ahbm-launch: {error}") from None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_private(path: Path) -> str:
    """Read a file with secrets.

    Raises:
        ConfigError: when it cannot be read, or others could read it too.
    """
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path} has mode {mode:04o} and can be read by others; run: chmod 600 {path}")
            return file.read()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
