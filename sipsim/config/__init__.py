"""Config files: their schema (``model``), reading them strictly (``load``) and saying what is wrong (``check``)."""
