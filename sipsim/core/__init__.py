"""What every room uses: units, types, errors, registries, the event engine, tasks, arithmetic. It knows no chip."""
