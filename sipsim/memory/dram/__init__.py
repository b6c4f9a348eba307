"""DRAM devices: presets, address mapping, and the state of a pseudo channel."""
