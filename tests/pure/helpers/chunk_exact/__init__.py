"""A chunk-exact simulation of edges that virtual channels share, as a reference. Not a test."""
