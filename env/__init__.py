"""The machine: what it is, bringing it into a stable state, watching it and putting it back."""
