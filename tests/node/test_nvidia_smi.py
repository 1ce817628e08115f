"""nvidia-smi's output in its documented forms, and a small program of that name that answers in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from builder.errors import CannotTell
from builder.node.nvidia_smi import FIELDS, failure, parse_query, parse_xml, read_nvidia

QUERY = """\
NVIDIA H100 80GB HBM3, 580.65.06, 81559 MiB, 9.0, 96.00.74.00.01
NVIDIA H100 80GB HBM3, 580.65.06, 81559 MiB, 9.0, 96.00.74.00.01
"""

XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Mon Nov 30 20:00:00 2026</timestamp>
\t<driver_version>470.223.02</driver_version>
\t<cuda_version>11.4</cuda_version>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:00:1E.0">
\t\t<product_name>Tesla T4</product_name>
\t\t<vbios_version>90.04.96.00.02</vbios_version>
\t\t<fb_memory_usage>
\t\t\t<total>15109 MiB</total>
\t\t</fb_memory_usage>
\t</gpu>
</nvidia_smi_log>
"""

FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.65\n"


def test_query() -> None:
    facts = parse_query(QUERY)
    assert facts.driver == "580.65.06"
    assert len(facts.gpus) == 2
    gpu = facts.gpus[0]
    assert (gpu.name, gpu.memory_mib, gpu.compute_capability) == ("NVIDIA H100 80GB HBM3", 81559, "9.0")
    assert gpu.vbios == "96.00.74.00.01"


def test_fields_that_are_not_there_are_not_known() -> None:
    (gpu,) = parse_query("NVIDIA GB10, 580.95.05, [N/A], 12.1, [N/A]\n").gpus
    assert (gpu.memory_mib, gpu.vbios, gpu.compute_capability) == (None, None, "12.1")


def test_xml() -> None:
    facts = parse_xml(XML)
    assert facts.driver == "470.223.02"
    (gpu,) = facts.gpus
    assert (gpu.name, gpu.memory_mib, gpu.compute_capability, gpu.vbios) == ("Tesla T4", 15109, None, "90.04.96.00.02")


@pytest.mark.parametrize(
    "text", ["", "<nvidia_smi_log/>", "<nvidia_smi_log>", '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>']
)
def test_other_xml_is_not_understood(text: str) -> None:
    with pytest.raises(CannotTell, match="did not answer as documented"):
        parse_xml(text)


@pytest.mark.parametrize("text", ["one, two\n", "No devices were found\n"])
def test_other_text_is_not_understood(text: str) -> None:
    with pytest.raises(CannotTell, match="did not answer as documented"):
        parse_query(text)


def test_no_devices() -> None:
    with pytest.raises(CannotTell, match="lists no devices"):
        parse_query("\n")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (FAILED, "the NVIDIA driver does not answer"),
        (MISMATCH, "the NVIDIA kernel module and its library differ"),
        ("No devices were found\n", "no NVIDIA device was found"),
        ("Segmentation fault\n", "nvidia-smi failed"),
        ("", "nvidia-smi failed"),
    ],
)
def test_failures_are_understood(text: str, what: str) -> None:
    error = failure(text, 9)
    assert error.what == what
    assert error.why
    assert error.fix


def program(folder: Path, body: str) -> Path:
    """A nvidia-smi that does what `body` says."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!{sys.executable} -S\nimport sys\n{body}", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_tool_is_asked_for_the_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader"]
    program(tmp_path, f"assert sys.argv[1:] == {wanted!r}, sys.argv\nsys.stdout.write({QUERY!r})\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_nvidia() == parse_query(QUERY)


def test_an_old_tool_is_asked_for_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = 'Field "compute_cap" is not a valid field to query.\\n'
    program(
        tmp_path,
        f"if sys.argv[1:] == ['-q', '-x']:\n    sys.stdout.write({XML!r})\n"
        f"else:\n    sys.stdout.write('{refusal}')\n    sys.exit(2)\n",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_nvidia() == parse_xml(XML)


def test_a_driver_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"sys.stdout.write({FAILED!r})\nsys.exit(9)\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotTell) as caught:
        read_nvidia()
    assert caught.value.why.startswith("NVIDIA-SMI has failed because it couldn't communicate")
    assert "modprobe nvidia" in caught.value.fix


def test_no_tool_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotTell, match="no NVIDIA driver was found"):
        read_nvidia()


def test_a_tool_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotTell, match="cannot be started"):
        read_nvidia()
