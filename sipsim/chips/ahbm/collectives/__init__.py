"""Process groups at run time: where their rings lie, which PEs work for them, and the queue pairs that join these."""
