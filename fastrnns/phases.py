"""The phases of a result: timed on the stream, as a program runs them; and replayed, as the GPU alone takes them."""

STREAM = ("forward", "backward")
# Device time of a CUDA graph's replay on a busy stream: what the host takes to launch is not in it.
REPLAYED = ("forward_graph", "backward_graph")
ALL = STREAM + REPLAYED
