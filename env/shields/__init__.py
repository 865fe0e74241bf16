"""The shield backends, one file each."""
