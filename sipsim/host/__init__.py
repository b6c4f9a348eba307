"""What a host script sees: tensors, ``torch.distributed``, and how its ranks are run."""

from sipsim.host.dp_policy import DPPolicy

__all__ = ["DPPolicy"]
