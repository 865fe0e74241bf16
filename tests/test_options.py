import pytest

from env import errors as env_errors
from fastrnns import device, options, runner
from fastrnns.errors import UsageError


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(device, "visible_gpus", lambda: device.Gpus(0, "this machine has no NVIDIA GPU"))


def parsed(*argv):
    return options.bench_options(argv, options.parser().parse_args(argv))


def refused(*argv):
    with pytest.raises((UsageError, env_errors.UsageError)) as error:
        parsed(*argv)
    assert error.value.exit_code == 2
    return str(error.value)


def test_the_defaults_are_upstreams():
    found = parsed()
    assert found.models == (*runner.DEFAULT["rnns"], *runner.DEFAULT["cnns"])
    assert found.problem.as_dict() == {
        "seq_length": 100, "num_layers": 1, "input_size": 512, "hidden_size": 512, "mini_batch": 64,
    }  # fmt: skip
    assert (found.fuser, found.executor, found.sep, found.print_json) == ("te", None, " ", None)
    assert (found.machine.env, found.archive, found.tf32, str(found.device)) == ("check", None, False, "cpu")


@pytest.mark.parametrize("dash", ["-", "_"])
def test_flags_of_several_words_are_accepted_with_dashes_and_with_underscores(dash):
    argv = [
        f"--variable{dash}lstms", f"--print{dash}json", "oss", f"--cuda{dash}pointwise{dash}loop{dash}level", "2",
        f"--cuda{dash}pointwise{dash}block{dash}count", "3", f"--cuda{dash}pointwise{dash}block{dash}size", "64",
        f"--seq{dash}length", "7",
    ]  # fmt: skip
    found = parsed(*argv)
    assert found.cuda_pointwise == {"loop_level": 2, "block_count": 3, "block_size": 64}
    assert (found.print_json, found.problem.seq_length) == ("oss", 7)
    assert set(runner.VARIABLE) < set(found.models)


def test_sizes_keep_upstreams_spelling():
    found = parsed(
        "--seqLength", "3", "--numLayers", "1", "--inputSize", "4", "--hiddenSize", "5", "--miniBatch", "6"
    )
    assert list(found.problem.as_dict().values()) == [3, 1, 4, 5, 6]


def test_bare_print_json_is_oss():
    assert parsed("--print-json").print_json == "oss"
    assert parsed("--print-json", "pep").print_json == "pep"


def test_named_models_run_alone_and_groups_can_be_asked_for():
    assert parsed("--rnns", "cudnn", "jit").models == ("cudnn", "jit")
    assert parsed("--rnns", "cudnn", "--cnns", "resnet18").models == ("cudnn", "resnet18")
    assert parsed("--rnns", "cudnn", "--group", "rnns", "cnns").models == ("cudnn", *runner.DEFAULT["cnns"])
    assert parsed("--group", "cnns").models == runner.DEFAULT["cnns"]
    assert parsed("--rnns", "jit", "jit").models == ("jit",)


def test_upstream_fault_15_an_unknown_model_is_an_answer_with_near_matches():
    assert "did you mean" in refused("--rnns", "jit_premull")
    assert "--cnns" in refused("--rnns", "resnet18")


def test_upstream_fault_8_several_layers_are_refused_by_a_one_layer_model_with_those_that_can():
    message = refused("--numLayers", "2", "--rnns", "jit")
    assert "jit_multilayer" in message
    assert "cudnn" in message


def test_a_default_model_that_cannot_is_reported_and_the_others_run():
    found = parsed("--numLayers", "2", "--group", "rnns")
    assert "cudnn" in found.models
    assert "jit" in dict(found.unsupported)


def test_upstream_fault_10_a_seed_of_zero_is_a_seed():
    assert parsed("--seed", "0").seed == 0
    assert parsed("--seed", "0").recorded()["seed"] == 0
    assert "--seed" in refused("--seed", "-1")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("--nloops", "0"), "--nloops"),
        (("--nloops", "-5"), "--nloops"),
        (("--warmup", "-1"), "--warmup"),
        (("--processes", "0"), "--processes"),
        (("--precision", "0"), "--precision"),
        (("--precision", "nan"), "--precision"),
        (("--budget", "-1"), "--budget"),
        (("--budget", "nan"), "--budget"),
        (("--hiddenSize", "-3"), "--hiddenSize"),
        (("--seqLength", "0"), "--seqLength"),
        (("--device", "cuda"), "--device"),
        (("--device", "tpu"), "--device"),
        (("--cpus", "99999"), "--cpus"),
        (("--cpus", "1-"), "--cpus"),
        (("--cuda-pointwise-block-size", "0"), "--cuda-pointwise-block-size"),
    ],
)
def test_case_D7_and_F1_what_cannot_be_is_refused_by_its_flag(argv, named):
    assert named in refused(*argv)


def test_upstream_fault_13_an_unknown_fuser_or_executor_is_refused(capsys):
    for flag in ("--fuser", "--executor"):
        with pytest.raises(SystemExit) as ended:
            options.parser().parse_args([flag, "nvfuser2"])
        assert ended.value.code == 2


def test_an_archive_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    assert "archive" in refused("--archive", str(tmp_path / "file" / "below"))
    parsed("--archive", str(tmp_path / "a b" / "new"))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_number_format_is_recorded_and_half_has_no_tf32(dtype):
    found = parsed("--dtype", dtype)
    assert (found.dtype, found.tf32, found.recorded()["dtype"]) == (dtype, False, dtype)
    with pytest.raises(UsageError, match=f"leave it out with --dtype {dtype}"):
        parsed("--dtype", dtype, "--tf32", "on")


@pytest.mark.parametrize(
    "words", [("--dtype", "tf32"), ("--tf32", "on"), ("--dtype", "tf32", "--tf32", "on")]
)
def test_tf32_is_one_choice_on_a_gpu_however_it_was_spelled(words):
    args = options.parser().parse_args(words)
    assert options.dtype_from(args, "cuda") == ("tf32", True)


def test_tf32_on_a_cpu_is_refused_and_the_flag_alone_changes_nothing():
    with pytest.raises(UsageError, match="tf32 is a mode of NVIDIA GPUs"):
        parsed("--dtype", "tf32")
    assert (parsed("--tf32", "on").dtype, parsed().tf32) == ("fp32", False)


def test_graphs_are_replayed_on_a_gpu_only():
    with pytest.raises(UsageError, match="there are none on the cpu"):
        parsed("--graph-replay")
    assert options.graph_replay_from(options.parser().parse_args(["--graph-replay"]), "cuda")


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan"])
def test_a_limit_for_compiling_that_is_none_is_refused(value):
    assert "--compile-limit" in refused("--compile-limit", value)


def test_every_option_is_recorded_with_its_effective_value():
    recorded = parsed("--nloops", "5", "--tf32", "on", "--precision", "2").recorded()
    assert recorded["device"] == "cpu"
    assert (recorded["nloops"], recorded["warmup"], recorded["processes"]) == (5, None, 1)
    assert (recorded["tf32"], recorded["precision"]) == (True, 0.02)
