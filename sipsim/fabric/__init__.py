"""Networks: graphs and routes, the fabrics that time transfers, links between SIPs and the network of all SIPs."""
