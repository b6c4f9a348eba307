"""Config files: their schema (``model``), strict reading (``load``) and checks against the schema (``check``)."""
