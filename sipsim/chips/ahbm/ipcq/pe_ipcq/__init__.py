"""The files of one subject, which become pe_ipcq.py."""
