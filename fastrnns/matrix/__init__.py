"""Many builds of PyTorch, each in an environment of its own, measured in turn on one machine and compared."""
