"""Says which module of a user an unexpected error comes from, before anything has started."""

import traceback
from types import FrameType

from sipsim.core.errors import ConfigError, error_text
from sipsim.core.registry.registry import is_definer
from sipsim.node.script import SHARED_PACKAGES
from sipsim.records.code_place import INSTALLED


def users_error(error: BaseException) -> ConfigError | None:
    """The error as one line with its place, if it passed through a module of a user that defines a part of the run.

    None for others: they are the simulator's own.
    """
    users = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame)]
    if not users:
        return None
    frame, line = users[-1]
    code = frame.f_code
    return ConfigError(f"{code.co_filename}:{line}: {code.co_name} raised {' '.join(error_text(error).split())}")


def _is_users(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    is_own = module.partition(".")[0] in SHARED_PACKAGES
    return is_definer(module) and not is_own and not frame.f_code.co_filename.startswith(INSTALLED)
