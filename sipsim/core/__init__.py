"""Base layer of all packages, without chips: units, types, errors, registries, event engine, tasks, arithmetic."""
