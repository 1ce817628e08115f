"""What a wheel must hold, translation layers, and exceptions that a project writes down."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder import resources
from builder.audit.audit import Terms, audit_wheel, provided_by
from builder.audit.environment import marker_environment
from builder.audit.tables import load_contents, load_tables, load_translations
from builder.audit.values import TargetAudit
from builder.errors import BadInput
from builder.lock.files import write_lock
from tests import schemas
from tests.audit.inside import Inside
from tests.audit.make import as_c_array, bundle, fatbin, judged, library, wheel
from tests.audit.test_lock_audit import lock_of

PY = "int PyInit_x(void) { return 0; }"


def absent(path: Path, backend: str) -> str:
    found = [finding for finding in judged(path, backend).findings if finding.rule == "must-contain"]
    assert judged(path, backend).level in (("warn",) if found else ("ok",))
    return found[0].evidence if found else ""


def test_torch_npu_without_its_library_is_a_placeholder(tmp_path: Path) -> None:
    ops = library(tmp_path, "ops.so", code=PY, needs=["libascendcl.so"]).read_bytes()
    core = library(tmp_path, "libtorch_npu.so", soname="libtorch_npu.so").read_bytes()
    empty = wheel(tmp_path, "torch-npu", {"torch_npu/ops.so": ops}, version="2.0")
    assert absent(empty, "npu").startswith("torch-npu for npu must hold libtorch_npu.so, and does not")
    files = {"torch_npu/ops.so": ops, "torch_npu/lib/libtorch_npu.so": core}
    assert absent(wheel(tmp_path, "torch-npu", files, version="2.1"), "npu") == ""


def test_a_rocm_label_over_a_build_without_hip_code(tmp_path: Path) -> None:
    plain = library(tmp_path, "x.so", code=PY).read_bytes()
    soft = {"vision/x.so": plain, "vision/load.py": b'import ctypes\nctypes.CDLL("libamdhip64.so.7")\n'}
    path = wheel(tmp_path, "vision", soft, version="0.28.0+rocm7.2")
    assert "none of its 1 ELF files links to rocm" in absent(path, "rocm")
    code = as_c_array(bundle("hipv4-amdgcn-amd-amdhsa--gfx942"), section=".hip_fatbin") + PY
    hip = library(tmp_path, "y.so", code=code).read_bytes()
    assert absent(wheel(tmp_path, "vision", {"vision/x.so": hip}, version="0.29.0+rocm7.2"), "rocm") == ""
    # Python alone proves nothing either way, and another backend's question is another question.
    python = wheel(tmp_path, "vision", {"vision/a.py": b""}, version="0.30.0+rocm7.2")
    assert absent(python, "rocm") == ""
    assert absent(path, "cpu") == ""


def test_rows_name_libraries_and_backends_that_exist() -> None:
    known = load_tables().libraries
    for row in load_contents():
        assert row.backend in resources.backends()
        assert bool(row.library) != bool(row.tokens)
        assert not row.library or known[row.library].backend == row.backend
    for layer in load_translations():
        assert {layer.backend, layer.of} <= set(resources.backends())
        assert {known[stem].backend for stem in layer.libraries} == {layer.of}


def translated(path: Path, *layers: str) -> TargetAudit:
    return audit_wheel(
        path,
        path.name,
        Terms(backend="rocm", environment=marker_environment("3.11", "x86_64"), translations=layers),
        store=None,
    )


def test_a_declared_layer_resolves_what_it_provides_and_no_more(tmp_path: Path) -> None:
    made = library(tmp_path, "x.so", code=PY, needs=["libcuda.so.1", "libcublas.so.12"])
    path = wheel(tmp_path, "kit", {"kit/x.so": made.read_bytes()})
    assert translated(path).level == "block"
    audit = translated(path, "zluda")
    assert audit.level == "ok"
    (finding,) = (finding for finding in audit.findings if finding.rule.startswith("foreign-"))
    assert (finding.rule, finding.severity) == ("foreign-hard", "info")
    assert finding.evidence.endswith("provided by zluda")
    more = library(tmp_path, "y.so", code=PY, needs=["libcuda.so.1", "libcudart.so.12"])
    both = translated(wheel(tmp_path, "kit", {"kit/y.so": more.read_bytes()}, version="2.0"), "zluda")
    assert both.level == "block"
    (error,) = (finding for finding in both.findings if finding.severity == "error")
    assert error.evidence == "kit/y.so: DT_NEEDED libcudart.so.12"


def test_a_layer_does_not_excuse_the_real_library_or_machine_code(tmp_path: Path) -> None:
    real = library(tmp_path, "libcublas.so.12", soname="libcublas.so.12").read_bytes()
    device = library(tmp_path, "d.so", code=as_c_array(fatbin("sm_90"))).read_bytes()
    path = wheel(tmp_path, "kit", {"kit/libcublas.so.12": real, "kit/d.so": device})
    assert translated(path, "zluda").level == "carry"
    assert translated(path, "zluda").tokens["cuda"] == ("bundled", "device")
    own = library(tmp_path, "libcuda.so.1", soname="libcuda.so.1", needs=["libamdhip64.so.7"]).read_bytes()
    layer = wheel(tmp_path, "layer", {"layer/libcuda.so.1": own})
    assert translated(layer, "zluda").level == "ok"
    assert translated(layer).level == "carry"


@pytest.mark.parametrize(("name", "backend", "said"), [("zlud", "rocm", "zluda"), ("zluda", "cuda", "it is for rocm")])
def test_a_layer_that_is_not_in_the_table(name: str, backend: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        provided_by([name], backend)
    assert said in f"{caught.value.why} {caught.value.fix}"


PROJECT = """
name = "svc"
version = "1.0"
requirements = ["kit"]

[backend.rocm]
translations = [{layers}]

[[audit.exception]]
package = "Other_Kit"
rule = "foreign-hard"
reason = "never called"
expires = {expires}
"""


@pytest.mark.parametrize(
    ("layers", "expires", "level"),
    [('"zluda"', "2999-01-01", "ok"), ("", "2999-01-01", "block"), ('"zluda"', "2020-01-01", "block")],
)
def test_the_project_beside_a_lock_says_layers_and_exceptions(
    builder: Inside, tmp_path: Path, layers: str, expires: str, level: str
) -> None:
    one = library(tmp_path, "x.so", code=PY, needs=["libcuda.so.1"]).read_bytes()
    two = library(tmp_path, "y.so", code=PY, needs=["libcudart.so.12"]).read_bytes()
    files = {
        "kit": wheel(tmp_path, "kit", {"kit/x.so": one}),
        "other-kit": wheel(tmp_path, "other-kit", {"other_kit/y.so": two}),
    }
    folder = tmp_path / "project"
    folder.mkdir()
    lock = write_lock(lock_of(files, {}, ("kit", "other-kit"), "rocm"), folder)
    (folder / "builder.toml").write_text(PROJECT.format(layers=layers, expires=expires))
    document = schemas.document(builder("audit", lock, "--backend", "rocm", "--json"), "audit")
    assert document["verdict"] == level
    excepted = [f["evidence"] for t in document["targets"] for f in t["findings"] if "[excepted until" in f["evidence"]]
    assert len(excepted) == (expires > "2026")
    # Named, the same file counts for a wheel too.
    alone = builder("audit", files["kit"], "--backend", "rocm", "--project", folder, "--json")
    assert alone.returncode == (0 if layers else 1)


def test_faults_of_exceptions_stand_on_their_line(builder: Inside, tmp_path: Path) -> None:
    (tmp_path / "builder.toml").write_text(
        'name = "svc"\nversion = "1"\n[audit]\nexception = [{ package = "x", rule = "y", expires = 2030-01-01 }, 3]\n'
    )
    found = schemas.error(builder("audit", "x.whl", "--backend", "cpu", "--project", tmp_path, "--json"), 2)
    assert [fault["what"] for fault in found["faults"]] == [
        "exception[0]: reason is missing or not a str",
        "exception[1] is no table",
    ]
    assert all("builder.toml:4" in fault["where"] for fault in found["faults"])
