"""Commands ``ahbm-broker`` and ``ahbm-sip``: a run whose processes are started by hand, on any number of machines.

``ahbm-broker`` is ``ahbm-launch`` with the engine ``manual``: the command writes a ticket for each rank, waits for all
SIPs to join, and prints the usual table. ``ahbm-sip`` needs only the ticket of the rank.
"""

import argparse
import os
import sys
from pathlib import Path

from msgspec.structs import replace

from launcher.commands import launch as cli
from launcher.engines.manual import TICKETS
from launcher.hosts.bootstrap import sip_address, tcp
from launcher.options import closing
from launcher.processes.descendants import left_line, own_children_ended
from launcher.processes.entry import rank_environment
from launcher.processes.this_host import check_files
from launcher.processes.ticket import Ticket, read_private
from sipsim.core.errors import ConfigError
from sipsim.node.process import run_sip

BROKER_EXAMPLES = closing(
    "docs/clusters.md",
    "ahbm-broker --tickets tickets --sips 2",
    "ahbm-broker --tickets tickets --bind 10.0.0.1 --sips 4 --topology torus_2d",
    "ahbm-broker --tickets tickets --sips 2 --no-verify-data my_script.py",
)
SIP_EXAMPLES = closing(
    "docs/clusters.md",
    "ahbm-sip tickets/sip-0.ticket",
    "ahbm-sip sip-1.ticket",
    "ahbm-sip --bind 10.0.0.2 sip-1.ticket",
)
USAGE = f"""usage: ahbm-broker --tickets DIR [flags of ahbm-launch] [script.py [script args]]

Starts the broker alone and writes DIR/sip-R.ticket for each rank, readable by its owner only. Copy each ticket to the
host of the rank and start the rank there: ahbm-sip sip-R.ticket. ahbm-broker prints the table, and cannot check
results of a script on other hosts: give --no-verify-data with a script. All SIPs must join within an hour, or within
--join-timeout S seconds; otherwise the run fails and names the missing ranks.

{BROKER_EXAMPLES}"""
JOIN_TIMEOUT_S = 3600
"""Seconds for all SIPs to join unless --join-timeout is given; long, since people start the SIPs."""


def broker_main(argv: list[str] | None = None) -> int:
    """Run ``ahbm-broker``; return an exit code with the meaning that it has for ``ahbm-launch``."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "--help" in arguments or "-h" in arguments:
        print(USAGE)
        return 0
    index = next((i for i, text in enumerate(arguments) if text.partition("=")[0] == "--tickets"), len(arguments))
    _, equals, folder = arguments.pop(index).partition("=") if index < len(arguments) else ("", "", "")
    if not equals and index < len(arguments):
        folder = arguments.pop(index)
    if not folder or folder.startswith("-"):
        print("ahbm-broker: give --tickets DIR, the folder for the tickets of all ranks", file=sys.stderr)
        return ConfigError.exit_code
    os.environ[TICKETS] = folder
    # If a flag is given twice, the last value counts, which is the user's value.
    return cli.main(["--engine", "manual", "--join-timeout", str(JOIN_TIMEOUT_S), *arguments])


def sip_main(argv: list[str] | None = None) -> int:
    """Run ``ahbm-sip``; return 0 after ``End``, 2 after a line about a bad ticket, 4 if the broker is lost."""
    parser = argparse.ArgumentParser(
        prog="ahbm-sip",
        description="Simulates one SIP of a run that ahbm-broker has started.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=SIP_EXAMPLES,
    )
    parser.add_argument("ticket", type=Path, help="the file that ahbm-broker has written for the rank")
    parser.add_argument(
        "--bind", default="", metavar="ADDR", help="address at which other hosts reach this host (detected)"
    )
    arguments = parser.parse_args(argv)
    try:
        ticket = Ticket.from_text(read_private(arguments.ticket), str(arguments.ticket))
        if ticket.spec is None:
            raise ConfigError(f"{arguments.ticket} is the ticket of an agent; give a file sip-R.ticket")
        endpoint = ticket.spec.endpoint or tcp(sip_address(ticket.spec.broker, arguments.bind))
        spec = replace(ticket.spec, endpoint=endpoint)
        plan, job = ticket.prepare()
        check_files(plan, sips=True, broker=False)
    except ConfigError as error:
        print(f"ahbm-sip: {error}", file=sys.stderr)
        return error.exit_code
    if not 0 <= spec.rank < plan.system.n_sips:
        what = f"{arguments.ticket} is for rank {spec.rank}; ranks of this run are 0 to {plan.system.n_sips - 1}"
        print(f"ahbm-sip: {what}; start each rank with the ticket that was written for it", file=sys.stderr)
        return ConfigError.exit_code
    os.environ.update(rank_environment(spec, plan.system.n_sips, spec.rank, "by-hand", [spec.rank]))

    def report(pids: list[int]) -> None:
        print(f"ahbm-sip: {left_line(f'rank {spec.rank}', pids)}", file=sys.stderr)

    try:
        with own_children_ended(report):
            return run_sip(spec, plan, job)
    except KeyboardInterrupt:
        return 130
