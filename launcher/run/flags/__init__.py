"""The flags of `ahbm-launch`, group by group."""
