"""The files of one subject, which become mmu.py."""
