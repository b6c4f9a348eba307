"""PE_MMU: page tables that the host maps, and the TLB through which a PE uses them."""
