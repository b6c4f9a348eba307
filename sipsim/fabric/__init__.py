"""Networks: graphs and routes, fabrics that time transfers, links between SIPs, and the network of all SIPs."""
