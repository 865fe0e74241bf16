"""Records: what one command leaves behind, where it is kept, and how it is read back."""
