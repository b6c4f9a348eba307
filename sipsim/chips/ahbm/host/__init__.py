"""The host API that scripts see: tensors and ``torch.distributed``; and the loading of scripts."""

from sipsim.chips.ahbm.host.layout import DPPolicy

__all__ = ["DPPolicy"]
