"""``ahbm-probe``: its flags, its runs, its documents, its pictures."""
