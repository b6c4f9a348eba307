"""Operations of a kernel, with its handles, pointers and futures."""
