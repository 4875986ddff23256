"""Classic load balancing: balls into bins, servers behind a dispatcher, old information, and their theory."""
