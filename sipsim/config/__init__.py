"""Config files: their schema (``schema``), strict readers (``load``, ``yaml``) and checks of values (``check``)."""
