"""Host API of scripts: tensors, launches, and ``torch.distributed``."""

from sipsim.chips.ahbm.host.layout import DPPolicy

__all__ = ["DPPolicy"]
