"""Which model: compound systems and the search for their allocation; cascades and model routers."""
