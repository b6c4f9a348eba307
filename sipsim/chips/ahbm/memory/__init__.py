"""The bytes of a SIP's memories."""
