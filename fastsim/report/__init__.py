"""Tables and figures, fed only by what a sweep stored."""
