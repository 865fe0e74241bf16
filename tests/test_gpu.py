"""GPUs as an NVML that we wrote shows them: no GPU is needed here."""

from types import SimpleNamespace

import pytest

from env import fingerprint, gpu


class NVMLError(Exception):
    """As pynvml's."""


class FakeNvml:
    """Two equal GPUs; `missing` questions are not supported by them."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2

    def __init__(self, count=2, missing=(), fail=None, bits=0x4 | 0x20):
        self.count, self.missing, self.fail, self.bits, self.started = count, set(missing), fail, bits, 0

    def nvmlInit(self):
        self.started += 1
        if self.fail:
            raise self.fail

    def nvmlDeviceGetCount(self):
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        if index >= self.count:
            raise NVMLError("Invalid Argument")
        return index

    def __getattr__(self, name):
        if name.startswith("_") or name in self.missing:
            raise AttributeError(name)
        answers = {
            "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index}{index}{index}",
            "nvmlDeviceGetVbiosVersion": lambda _: "96.00.A5.00.01",
            "nvmlDeviceGetPowerManagementLimit": lambda _: 700_000,
            "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=150754820096, used=2**30),
            "nvmlDeviceGetCudaComputeCapability": lambda _: (9, 0),
            "nvmlDeviceGetPciInfo": lambda index: SimpleNamespace(busId=f"00000000:{index:02X}:00.0"),
            "nvmlDeviceGetEccMode": lambda _: [1, 1],
            "nvmlDeviceGetPersistenceMode": lambda _: 1,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda _: self.bits,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: self.bits,
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetPowerUsage": lambda _: 123_456,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                SimpleNamespace(pid=7),
                SimpleNamespace(pid=8),
            ],
        }
        if name in answers:
            return answers[name]
        if name.startswith("nvmlDeviceGet"):
            return self.unsupported
        raise AttributeError(name)

    @staticmethod
    def unsupported(*_):
        raise NVMLError("Not Supported")


def test_each_gpu_says_what_it_is_and_how_it_is_set():
    first, second = gpu.gpus(nvml=FakeNvml()).value
    assert (first.model, first.vbios, first.power_limit_w) == ("NVIDIA H200", "96.00.A5.00.01", 700.0)
    assert (first.ecc, first.persistence, first.mig) == (True, True, None)
    assert second.pci_bus_id == "0000:01:00.0"


def test_nvml_that_does_not_start_is_a_reason_and_not_an_absence(tmp_path):
    said = gpu.gpus(str(tmp_path), nvml=FakeNvml(fail=NVMLError("Driver Not Loaded")))
    assert said.value is None
    assert "Driver Not Loaded" in said.reason


def test_what_a_gpu_does_not_support_is_null():
    sample = gpu.sample(0, nvml=FakeNvml())
    assert sample["temperature_c"] is None
    assert sample["utilization_percent"] is None
    assert (sample["sm_mhz"], sample["memory_mhz"], sample["power_w"]) == (1980, 3201, 123.456)
    assert sample["event_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]


def test_event_reasons_have_their_older_name_too():
    library = FakeNvml(missing={"nvmlDeviceGetCurrentClocksEventReasons"}, bits=0x1)
    assert gpu.sample(1, nvml=library)["event_reasons"] == ["idle"]
    assert gpu.event_reasons(0x400) == ["bit_10"]
    assert gpu.event_reasons(0) == []


def test_nvml_is_started_once():
    library = FakeNvml()
    gpu.sample(0, nvml=library)
    gpu.sample(1, nvml=library)
    assert library.started == 1


@pytest.mark.parametrize(
    ("chosen", "indices"),
    [(None, [0, 1]), ("1", [1]), ("1,0", [1, 0]), ("", []), ("-1", []), ("0,9,1", [0]), ("GPU-111", [1])],
)
def test_cuda_visible_devices_chooses_and_orders(chosen, indices):
    environ = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert gpu.visible(environ=environ, nvml=FakeNvml()) == indices


def test_below_a_root_the_drivers_files_name_the_gpu(tmp_path):
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:1a:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text(
        "Model: \t\t NVIDIA H200\nVideo BIOS: \t 96.00.A5\nGPU UUID: \t GPU-1\n"
    )
    (found,) = gpu.gpus(str(tmp_path)).value
    assert (found.model, found.vbios, found.source) == ("NVIDIA H200", "96.00.A5", "driver files")


def test_without_a_driver_the_bus_still_shows_the_card(tmp_path):
    for name, vendor, kind in (
        ("0000:1a:00.0", "0x10de", "0x030200"),
        ("0000:1b:00.0", "0x10de", "0x068000"),
    ):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor)
        (folder / "class").write_text(kind)
        (folder / "device").write_text("0x2335")
    (found,) = gpu.gpus(str(tmp_path)).value
    assert found.model == "NVIDIA PCI device 2335"


def test_gpus_are_of_the_hardware_id_by_model_vbios_and_power_limit(tmp_path):
    facts = fingerprint.collect(str(tmp_path), steps=[], nvml=FakeNvml())
    assert facts["hardware"]["gpus"][0] == {
        "model": "NVIDIA H200", "vbios": "96.00.A5.00.01", "power_limit_w": 700.0, "memory_gib": 140,
    }  # fmt: skip
    assert facts["state"]["settings"]["gpus"][0]["ecc"] is True
    assert facts["state"]["wandering"]["gpus"][0]["sm_mhz"] == 1980


@pytest.mark.cuda
def test_the_real_gpu_answers():
    (first, *_) = gpu.gpus().value
    assert first.model
    assert gpu.sample(first.index)["sm_mhz"] > 0
