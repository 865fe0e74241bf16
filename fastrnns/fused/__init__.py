"""A persistent LSTM in Triton."""
