"""The host API that scripts see: tensors and ``torch.distributed``; and the loading of scripts."""

from sipsim.host.dp_policy import DPPolicy

__all__ = ["DPPolicy"]
