"""The control path of a SIP: from the host over IO_CPU and the M_CPUs to the PEs, and back."""
