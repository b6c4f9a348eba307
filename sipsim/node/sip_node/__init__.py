"""The files of one subject, which become sip_node.py."""
