"""Readers of request traces: one entry a format in `registry`, one way from bytes to a workload in `read`."""
