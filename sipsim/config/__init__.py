"""Config files: schema (``schema``), strict reading (``load``, ``yaml``) and checks (``check``)."""
