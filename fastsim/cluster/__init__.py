"""The LLM cluster: replicas, their prefix caches and step times, and the routers before them."""
