"""Ids that do not wander, facts that may be missing, and nothing private."""

import json
import time
from types import SimpleNamespace

import pytest

from env import fingerprint as fp
from env import software
from env.probes import Answer

X86 = """processor\t: {n}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: {brand}
stepping\t: 8
microcode\t: 0x2b000590
cpu MHz\t\t: {mhz}
flags\t\t: fpu sse4_2 avx2 fma avx512f {flags}
"""
ARM = """processor\t: {n}
BogoMIPS\t: {mhz}
Features\t: fp asimd {flags}
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {part}
CPU revision\t: 1
Serial\t\t: 00000000deadbeef
"""
NO_ANSWER = Answer(None, "no answer within 8 s")


def tree(root, *, cpus=2, form=X86, siblings=1, **facts):
    """A machine with so many CPUs below `root`."""
    facts = {"brand": "Intel(R) Xeon(R) Platinum 8481C", "mhz": "2700.0", "flags": "", "n": 0} | facts
    files = {
        "proc/cpuinfo": "\n".join(form.format(**{**facts, "n": n}) for n in range(cpus)),
        "proc/meminfo": f"MemTotal:       {facts.get('memory_kib', 16 * 2**20)} kB\nMemAvailable: 1000000 kB\n",
        "proc/loadavg": facts.get("load", "0.10 0.20 0.30 1/200 4242"),
        "proc/uptime": facts.get("uptime", "100.00 200.00"),
        "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz root=UUID=1-2-3 ip=10.0.0.7 isolcpus=2,3 password=hunter2",
        "proc/version": "Linux version 6.1 (builder@buildhost) (gcc)",
        "proc/sys/kernel/osrelease": facts.get("kernel", "6.1.0-13-amd64"),
        "proc/sys/kernel/ostype": "Linux",
        "proc/sys/kernel/arch": "x86_64",
        "etc/os-release": 'NAME="Debian"\nID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n',
        "etc/hostname": "snowwhite",
        "sys/devices/system/cpu/present": f"0-{cpus - 1}\n",
        "sys/devices/system/cpu/online": facts.get("online", f"0-{cpus - 1}\n"),
        "sys/devices/system/cpu/cpu0/cache/index0/level": "1\n",
        "sys/devices/system/cpu/cpu0/cache/index0/type": "Data\n",
        "sys/devices/system/cpu/cpu0/cache/index0/size": "48K\n",
        "sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size": "64\n",
        "sys/devices/system/node/node0/cpulist": f"0-{cpus - 1}\n",
    }
    for cpu in range(cpus):
        base = f"sys/devices/system/cpu/cpu{cpu}/topology"
        first = cpu // siblings * siblings
        files[f"{base}/physical_package_id"] = "0\n"
        files[f"{base}/thread_siblings_list"] = ",".join(str(first + n) for n in range(siblings)) + "\n"
    files |= facts.get("more", {})
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.fixture(autouse=True)
def _the_project_stands_still(monkeypatch):
    """A file of the project saved between two looks would be another software id, and rightly so."""
    monkeypatch.setattr(software.git, "source_sha256", lambda: "0" * 64)
    monkeypatch.setattr(software.git, "_git", lambda *_: Answer("0" * 40))


def ids(root, **options):
    return fp.complete(fp.collect(root, steps=[], ask_cpuinfo=lambda: NO_ANSWER, **options))["ids"]


def test_this_machine_has_three_ids_the_same_at_every_look():
    first, second = (fp.fingerprint(steps=[]) for _ in range(2))
    assert first["ids"] == second["ids"]
    assert all(first["ids"].values())
    json.dumps(first, allow_nan=False)


def test_case_C3_what_wanders_is_recorded_and_is_in_no_id(tmp_path):
    calm = tree(tmp_path / "a")
    busy = tree(
        tmp_path / "b", mhz="3899.123", load="9.00 8.00 7.00 5/200 1", uptime="9999.0 1.0", flags="newflag"
    )
    assert ids(calm) == ids(busy)
    facts = fp.complete(fp.collect(busy, steps=[]))
    assert facts["state"]["wandering"]["load"] == [9.0, 8.0, 7.0]
    assert facts["state"]["wandering"]["cpu_mhz"]["max"] == 3899.123


@pytest.mark.parametrize(
    ("change", "part", "named"),
    [
        ({"brand": "Intel(R) Xeon(R) Gold 6430"}, "hardware", "cpu.brand"),
        ({"cpus": 4}, "hardware", "topology.cpus"),
        ({"siblings": 2}, "hardware", "topology.threads_per_core"),
        ({"memory_kib": 8 * 2**20}, "hardware", "memory_gib"),
        ({"kernel": "6.1.0-14-amd64"}, "software", "kernel.release"),
        ({"online": "0\n"}, "state", "settings.cpus_online"),
    ],
)
def test_case_C3_what_counts_changes_its_id_and_is_named(tmp_path, change, part, named):
    one = fp.complete(fp.collect(tree(tmp_path / "a"), steps=[]))
    other = fp.complete(fp.collect(tree(tmp_path / "b", **change), steps=[]))
    assert one["ids"][part] != other["ids"][part]
    assert named in fp.differences(one, other, part)
    for same in {"hardware", "software"} - {part}:
        assert one["ids"][same] == other["ids"][same]


def test_case_C3_driver_and_torch_are_of_the_software_id(tmp_path):
    facts = fp.collect(tree(tmp_path), steps=[])
    one, other = (fp.complete(facts, {"torch": {"version": version}}) for version in ("2.13.0", "2.14.1"))
    assert one["ids"]["software"] != other["ids"]["software"]
    assert fp.differences(one, other, "software") == ["torch.version"]
    driver = fp.complete(facts, {"driver": "999.1"})
    assert driver["software"]["driver"] == {"nvidia": "999.1"}


def test_a_step_changes_the_state_id_and_no_other():
    stable = [{"name": "governor", "status": "stable", "current": "performance"}]
    facts = {"hardware": {"cpu": {"brand": "x"}}, "software": {}, "errors": {}}
    one, other = (
        fp.complete({**facts, "state": {"steps": {s["name"]: s["current"] for s in steps}}})
        for steps in ([], stable)
    )
    assert one["ids"]["state"] != other["ids"]["state"]
    assert one["ids"]["hardware"] == other["ids"]["hardware"]


def test_case_C1_two_arm_machines_without_a_brand_are_told_apart(tmp_path):
    graviton = tree(tmp_path / "a", form=ARM, implementer="0x41", part="0xd40")
    altra = tree(tmp_path / "b", form=ARM, implementer="0x41", part="0xd0c")
    assert ids(graviton)["hardware"] != ids(altra)["hardware"]
    facts = fp.complete(fp.collect(graviton, steps=[]))
    assert facts["hardware"]["cpu"]["brand"] is None
    assert "hardware.cpu.brand" in facts["errors"]
    assert "deadbeef" not in json.dumps(facts)


def test_case_C1_two_machines_of_which_nothing_is_known_have_no_id_in_common(tmp_path):
    bare = ids(str(tmp_path))
    assert bare["hardware"] is None


def test_case_C1_a_brand_that_only_py_cpuinfo_knows_does_not_change_the_id():
    kernel = {"implementer": "0x41", "part": "0xd0c"}
    asked = {"cpu": kernel | {"brand": "Neoverse-N1", "brand_source": "py-cpuinfo"}}
    silent = {"cpu": kernel | {"brand": None, "brand_source": None}}
    assert fp.part_id("hardware", asked) == fp.part_id("hardware", silent)
    other = {"cpu": {"brand": "Apple M4", "brand_source": "py-cpuinfo"}}
    assert fp.part_id("hardware", other) not in {None, fp.part_id("hardware", asked)}


@pytest.mark.parametrize(
    "answer", [{"arch": "ARM_8", "arch_string_raw": "aarch64", "count": 24, "model": 1}, {}, None, 7]
)
def test_case_C1_an_answer_without_a_brand_is_null_and_a_reason(tmp_path, answer):
    files = SimpleNamespace(real=True, read=fp.Files(str(tmp_path)).read)
    errors = {}
    cpu = fp.hardware_facts.cpu(files, [], errors, lambda: Answer(answer, "said nothing"))
    assert cpu["brand"] is None
    assert "hardware.cpu.brand" in errors


def test_case_C2_a_part_that_breaks_costs_that_part_only(tmp_path, monkeypatch):
    monkeypatch.setattr(fp.hardware_facts, "hardware", lambda *_, **__: 1 / 0)
    facts = fp.complete(fp.collect(tree(tmp_path), steps=[]))
    assert "ZeroDivisionError" in facts["errors"]["hardware"]
    assert facts["ids"]["hardware"] is None
    assert facts["software"]["kernel"]["release"] == "6.1.0-13-amd64"


def test_case_A8_cpus_switched_off_do_not_make_another_machine(tmp_path):
    whole = tree(tmp_path / "a", cpus=4, siblings=2)
    halved = tree(
        tmp_path / "b", cpus=4, siblings=2, online="0,2\n", more={"sys/devices/system/cpu/smt/control": "off"}
    )
    for cpu, text in ((0, "0"), (2, "2"), (1, ""), (3, "")):
        (tmp_path / f"b/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").write_text(text)
    assert ids(whole)["hardware"] == ids(halved)["hardware"]
    assert ids(whole)["state"] != ids(halved)["state"]


def test_nothing_private_is_in_a_fingerprint(tmp_path, monkeypatch):
    text = json.dumps(
        fp.complete(fp.collect(tree(tmp_path), steps=[]), {"torch": {"version": "2", "path": "/home/x"}})
    )
    for secret in ("hunter2", "10.0.0.7", "UUID", "snowwhite", "buildhost", "/home", str(tmp_path)):
        assert secret not in text
    assert "isolcpus" in text


def test_a_worker_adds_only_what_is_on_the_list(tmp_path):
    merged = software.merge({}, {"torch": {"version": "2", "secret": 1}, "hostname": "x"}, {})
    assert merged == {"torch": {"version": "2"}}


def test_installed_packages_are_named_once_and_broken_ones_are_counted():
    good = SimpleNamespace(metadata={"Name": "My_Pkg.x"}, version="1")
    again = SimpleNamespace(metadata={"Name": "my-pkg-x"}, version="2")
    errors = {}
    found = software.packages(errors, lambda: [good, again, SimpleNamespace()])
    assert found == {"my-pkg-x": "1"}
    assert errors == {"software.packages": "1 installed packages have unreadable metadata"}


def test_the_driver_version_is_read_without_the_build_host(tmp_path):
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (me@host)  Tue\nGCC 12.2.0"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(line)
    assert software.nvidia_driver(fp.Files(str(tmp_path))) == "570.86.15"


def test_a_person_reads_the_ids_first_and_what_failed_last(tmp_path):
    facts = fp.complete(fp.collect(tree(tmp_path), steps=[]))
    lines = fp.explain(facts).splitlines()
    assert lines[0] == f"hardware id  {facts['ids']['hardware']}"
    assert lines[-1].startswith("  software.torch")
    assert any("Xeon" in line for line in lines)


def test_a_machine_is_called_by_its_gpus_before_its_cpu():
    gpus = [{"model": "NVIDIA H200"}, {"model": "NVIDIA H200"}]
    assert fp.machine_name({"hardware": {"gpus": gpus, "cpu": {"brand": "x"}}}) == "2x NVIDIA H200"
    assert fp.machine_name({"hardware": {}}) == "unknown machine"


def test_the_fingerprint_of_this_machine_takes_less_than_its_limits():
    began = time.monotonic()
    fp.collect(steps=[])
    assert time.monotonic() - began < 60
