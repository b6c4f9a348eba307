"""Built-in collective algorithms, each a module; ``ccl.yaml`` lists their module names."""
