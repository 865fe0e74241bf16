"""The benchmarks: models, measurement, archive and the commands that join them."""
