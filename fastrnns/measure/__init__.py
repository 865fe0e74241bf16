"""Measuring: processes, clocks, iterations and their statistics."""
