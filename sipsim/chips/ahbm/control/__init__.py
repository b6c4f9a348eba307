"""The control path of a SIP: launches, copies between host and device, and maps, from the host to PEs and memories."""
