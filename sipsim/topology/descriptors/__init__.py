"""Files in which others describe how chips are joined; imported when one is given."""
