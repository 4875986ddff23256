"""Tests; a package, as peers of the benchmarks install one of the same name."""
