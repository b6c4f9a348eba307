"""The entry points: ahbm-launch, ahbm-probe, ahbm-broker and ahbm-sip."""
