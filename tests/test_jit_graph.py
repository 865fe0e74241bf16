from fastrnns import jit_graph

FUSED = """graph(%x : Tensor):
  %3 : Tensor = prim::DifferentiableGraph_0(%x)
  return (%3)
with prim::DifferentiableGraph_0 = graph(%x : Tensor):
  %4 : Tensor = aten::mm(%x, %x)
  %5 : Tensor = prim::TensorExprGroup_1(%4)
  return (%5)
with prim::TensorExprGroup_1 = graph(%x : Tensor):
  %1 : int = prim::Constant[value=1]()
  %6 : Tensor, %7 : Tensor = prim::ConstantChunk[chunks=2, dim=1](%x)
  %8 : Tensor = aten::sigmoid(%6)
  %9 : Tensor = aten::sigmoid(%7)
  %10 : Tensor = aten::mul(%8, %9)
  return (%10)
"""


def test_a_fused_group_is_named_with_its_operators():
    (fused,) = [group for group in jit_graph.groups(FUSED) if group.fused]
    assert fused.kind == "TensorExprGroup"
    assert fused.operators == ("prim::ConstantChunk", "aten::sigmoid", "aten::sigmoid", "aten::mul")


def test_the_description_says_what_was_fused():
    text = jit_graph.describe(FUSED)
    assert "fused into one kernel (TensorExprGroup): prim::ConstantChunk, sigmoid x2, mul" in text
    assert "differentiated by the JIT: 1 part" in text


def test_a_graph_without_groups_says_that_nothing_was_fused():
    assert jit_graph.describe("graph(%x : Tensor):\n  %1 : Tensor = aten::relu(%x)\n") == "nothing was fused"


def test_no_graph_is_not_described_as_one_without_fusion():
    assert jit_graph.describe("") == "the JIT ran no graph"
