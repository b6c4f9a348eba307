"""Ticket: the data that a process on another machine needs to take part in a run, as JSON.

A ticket contains config, job, working folder and import paths, and no code. The ticket of a manually started SIP also
contains the SIP's launch parameters; an agent gets these with the order that starts a SIP. A ticket may contain keys,
so only the owner of its file can read the file.
"""

import os
import stat
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from sipsim import VERSION
from sipsim.chips.api.chip import plan_of
from sipsim.chips.api.run_plan import RunPlan
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.files import ROOT, Folder, open_named, user_name
from sipsim.core.registry import UnknownName, source_lines
from sipsim.node.script import find_script
from sipsim.node.sip_node import SipProcessSpec
from sipsim.records.job import Job

Kind = TypeVar("Kind")


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ticket of a run. ``folder``: working folder, used if the other machine has it. ``paths``: further import paths.
    ``changes``: the key paths of values that the user has changed.
    """

    version: str
    config: Resolved
    job: Job
    folder: str = ""
    paths: tuple[str, ...] = ()
    changes: tuple[tuple[str, ...], ...] = ()
    spec: SipProcessSpec | None = None

    @staticmethod
    def of(plan: RunPlan, job: Job, spec: SipProcessSpec | None = None) -> "Ticket":
        """Return the ticket of a run that is prepared in this process."""
        paths = tuple(path for path in sys.path if path and not path.startswith((sys.prefix, sys.base_prefix)))
        config, changes = plan.resolved, plan.resolved.reads.paths
        return Ticket(
            version=VERSION, config=config, job=job, folder=os.getcwd(), paths=paths, changes=changes, spec=spec
        )

    def text(self) -> str:
        """Return the ticket as JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_text(text: str, where: str = "the ticket") -> "Ticket":
        """Parse and check the text.

        Raises:
            ConfigError: if the text is no ticket, or a ticket of another version.
        """
        return of_this_version(text, Ticket, where, "is no ticket")

    def prepare(self) -> tuple[RunPlan, Job]:
        """Change to the folder of the ticket and return the plan, made from the config, and the job.

        Raises:
            ConfigError: if the plan cannot be made on this host, or the script or the collective is missing.
        """
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [path for path in self.paths if path not in sys.path]
        if self.job.script is not None:
            find_script(self.job.script, self.job.as_module)
        plan = plan_of(self.config.watched(self.changes))
        try:
            source_lines([self.job.collective])
        except UnknownName as error:
            raise ConfigError(f"the run uses a definition that this host lacks: {error}") from None
        return plan, self.job


class _Version(msgspec.Struct):
    version: str


def of_this_version(text: str, kind: type[Kind], where: str, otherwise: str) -> Kind:
    """Decode a struct of type ``kind`` with a field ``version`` from JSON; the version is checked first.

    Raises:
        ConfigError: for another version, or if the text is no such struct; the message is ``where`` + ``otherwise``.
    """
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != VERSION:
            raise ConfigError(f"{where} is of version {version}, this host has {VERSION}; install one version")
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} {otherwise} of ahbm-launch: {error}") from None


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to a file atomically; only the owner can read the file."""
    with Folder(path.parent, is_checked=False) as folder:
        folder.write(path.name, text.encode())


def read_private(path: Path) -> str:
    """Return the content of a file with secrets, as written by :func:`write_private`.

    Raises:
        ConfigError: if the file cannot be read, belongs to another user, or is readable by others.
    """
    try:
        with os.fdopen(open_named(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{path} is no regular file; name the file that the launcher has written")
            if found.st_uid not in (os.geteuid(), ROOT):
                raise ConfigError(f"{path} belongs to {user_name(found.st_uid)}; use a file that belongs to you")
            mode = stat.S_IMODE(found.st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path} has mode {mode:04o} and can be read by others; run: chmod 600 {path}")
            return file.read()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
