"""Checking a model against references: tensors, tolerances and the process that compares them."""
