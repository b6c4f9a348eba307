"""Rules for ``system.chip``, and those of the chip that is chosen."""

from sipsim.chips.base import CHIPS, kind_of
from sipsim.config.check import convert_part
from sipsim.config.document import Path, Problem, Rule, unregistered
from sipsim.config.model import Resolved

CHIP: Path = ("system", "chip")
PARAMS: Path = ("system", "chip_params")


def known_chip(resolved: Resolved) -> Problem | None:
    """``system.chip`` is a registered chip kind."""
    return unregistered(CHIP, resolved.topology.system.chip, CHIPS)


def chip_params_fit_kind(resolved: Resolved) -> Problem | None:
    """``system.chip_params`` are exactly the kind's."""
    kind = kind_of(resolved)
    fitted = convert_part(kind.params_of(resolved.topology.system.chip_params), kind.Params, PARAMS)
    return Problem((*fitted.paths, CHIP), fitted.text) if isinstance(fitted, Problem) else None


def chip_rules_hold(resolved: Resolved) -> Problem | None:
    """The first problem that the chosen kind's own rules find."""
    return next(filter(None, (rule(resolved) for rule in kind_of(resolved).rules)), None)


RULES: tuple[Rule, ...] = (known_chip, chip_params_fit_kind, chip_rules_hold)
