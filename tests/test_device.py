import pytest

from fastrnns import device
from fastrnns.device import Device, Gpus, resolve, visible_gpus
from fastrnns.errors import UsageError

NONE = Gpus(0, "this machine has no NVIDIA GPU")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(device, "torch_without_cuda", lambda: False)
    (tmp_path / "dev").mkdir()

    def with_gpus(count, **environ):
        for name in [f"nvidia{n}" for n in range(count)] + ["nvidiactl", "nvidia-uvm"] * bool(count):
            (tmp_path / "dev" / name).touch()
        return visible_gpus(tmp_path, environ)

    return with_gpus


def test_auto_is_the_gpu_if_there_is_one_else_the_cpu():
    assert str(resolve("auto", Gpus(2))) == "cuda:0"
    assert str(resolve("auto", NONE)) == "cpu"
    assert resolve("cpu", Gpus(1)) == Device("cpu")


def test_upstream_fault_15_a_missing_gpu_is_an_answer_that_says_what_is_possible():
    with pytest.raises(UsageError, match="no NVIDIA GPU; use --device cpu") as error:
        resolve("cuda", NONE)
    assert error.value.exit_code == 2


def test_case_D5_a_numbered_gpu_is_a_gpu():
    assert resolve("cuda:1", Gpus(2)) == Device("cuda", 1)
    with pytest.raises(UsageError, match="cuda:0 is the only GPU"):
        resolve("cuda:1", Gpus(1))
    with pytest.raises(UsageError, match="cuda:0 to cuda:3"):
        resolve("cuda:4", Gpus(4))


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:-1", "cuda:x", "", "mps", "cuda:99999999"])
def test_what_is_no_device_is_refused(text):
    with pytest.raises(UsageError, match="not a device"):
        resolve(text, Gpus(1))


def test_gpus_are_counted_by_their_device_files(machine):
    assert machine(0) == Gpus(0, "this machine has no NVIDIA GPU (no /dev/nvidia0)")
    assert machine(2) == Gpus(2)


@pytest.mark.parametrize(
    ("mask", "count"),
    [("0", 1), ("1,0", 2), ("", 0), ("-1", 0), ("NoDevFiles", 0), ("0,9", 1), ("GPU-abc,MIG-1", 2)],
)
def test_a_mask_hides_gpus(machine, mask, count):
    assert machine(2, CUDA_VISIBLE_DEVICES=mask).count == count


def test_a_torch_without_cuda_sees_no_gpu(machine, monkeypatch):
    monkeypatch.setattr(device, "torch_without_cuda", lambda: True)
    assert machine(1) == Gpus(0, "the installed PyTorch is built without CUDA")


def test_nvml_is_asked_about_the_gpu_behind_the_mask():
    assert Device("cpu").nvml_index({}) is None
    assert Device("cuda", 1).nvml_index({}) == 1
    assert Device("cuda", 1).nvml_index({"CUDA_VISIBLE_DEVICES": "5,3"}) == 3
    assert Device("cuda", 0).nvml_index({"CUDA_VISIBLE_DEVICES": "GPU-abc"}) is None
