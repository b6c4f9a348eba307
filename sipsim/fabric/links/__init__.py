"""Links between SIPs: link kinds, ports, frames and outages. A kind is a module that registers a class by name."""
