"""The command line: turns flags and config files into a run, starts and watches the processes, reports."""
