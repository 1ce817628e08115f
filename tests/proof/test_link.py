"""What the link of a whole image reports, and how much each fault weighs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from builder.audit.tables import load_tables
from builder.proof.libraries import Libraries
from builder.proof.link import Linker
from builder.proof.reach import Reach
from builder.proof.search import SearchRules
from builder.proof.values import ImageConfig, LinkResult, Unresolved
from tests.proof.trees import SITE, SUFFIX, VENV, Tree, root_of

PATH = {"PATH": f"{VENV}/bin:/usr/bin"}


def link(
    tree: Tree,
    *,
    argv: tuple[str, ...] = ("python", "-m", "app"),
    env: Mapping[str, str] | None = None,
    backend: str = "cpu",
    allow: tuple[str, ...] = (),
) -> LinkResult:
    root = root_of(tree)
    config = ImageConfig(arch="x86_64", architecture="amd64", env={**PATH, **(env or {})}, entrypoint=argv)
    rules = SearchRules.of_image(root, machine=62, bits=64, env=config.env, workdir="/", level=3)

    def sources(paths: Iterable[str]) -> Mapping[str, bytes]:
        return {path: tree.path(path).read_bytes() for path in paths if tree.path(path).exists()}

    libraries = Libraries(load_tables())
    return Linker(root, config, rules, backend=backend, libraries=libraries, reach=Reach(sources), allow=allow).link()


def only(result: LinkResult) -> Unresolved:
    (fault,) = result.unresolved
    return fault


@pytest.fixture
def package(tree: Tree) -> Tree:
    """pkg with a module that needs libfoo.so.1, which is in a folder of its own."""
    tree.python()
    tree.library("/opt/foo/libfoo.so.1")
    tree.module("pkg/_core", needs=["libfoo.so.1"])
    tree.write(f"{SITE}/pkg/__init__.py", "from . import _core\n")
    tree.distribution("pkg", "pkg/__init__.py", f"pkg/_core{SUFFIX}")
    return tree


def test_a_clean_image(package: Tree) -> None:
    result = link(package, env={"LD_LIBRARY_PATH": "/opt/foo"})
    assert result.unresolved == ()
    assert result.programs == ("/usr/bin/python3.11",)
    assert result.modules == 1


def test_a_module_that_is_imported_for_sure(package: Tree) -> None:
    fault = only(link(package))
    assert (fault.object, fault.needed) == (f"{SITE}/pkg/_core{SUFFIX}", "libfoo.so.1")
    assert (fault.role, fault.weight) == ("module", "required")
    assert fault.nearest == "/opt/foo/libfoo.so.1"
    assert fault.fix.startswith("put /opt/foo on the search path")
    assert "/usr/lib (default)" in fault.searched


@pytest.mark.parametrize(
    ("source", "weight", "why"),
    [
        ("def use():\n    from . import _core\n", "optional", "inside a function or where the failure is caught"),
        ("try:\n    from . import _core\nexcept ImportError:\n    _core = None\n", "optional", "__init__.py:2"),
        ("import sys\nif sys.maxsize > 9:\n    from . import _core\n", "undecided", "under a condition"),
        ("", "undecided", "no import statement of its distribution names it"),
        ("try:\n    from . import _core\nexcept ImportError as e:\n    raise RuntimeError from e\n", "required", ""),
    ],
    ids=["function", "caught", "branch", "by name", "raised again"],
)
def test_how_a_module_is_imported_decides(package: Tree, source: str, weight: str, why: str) -> None:
    package.write(f"{SITE}/pkg/__init__.py", source)
    fault = only(link(package))
    assert fault.weight == weight
    assert why in fault.why


def test_faults_that_are_allowed_say_so(package: Tree) -> None:
    fault = only(link(package, allow=("pkg/_co*",)))
    assert fault.weight == "optional"
    assert "allowed by 'pkg/_co*'" in fault.why


def test_a_module_of_another_python_is_not_imported(package: Tree) -> None:
    package.path(f"{SITE}/pkg/_core{SUFFIX}").rename(package.path(f"{SITE}/pkg/_core.cpython-310-x86_64-linux-gnu.so"))
    result = link(package)
    assert result.modules == 0
    assert only(result).weight == "optional"


def test_a_library_brought_by_another_package(package: Tree) -> None:
    package.module("base/_base", needs=["libfoo.so.1"], flags=["-Wl,-rpath,/opt/foo"])
    package.write(f"{SITE}/base/libfoo.so.1", package.path("/opt/foo/libfoo.so.1").read_bytes())
    package.module("base/_base", needs=["libfoo.so.1"], flags=["-Wl,-rpath,$ORIGIN"])
    package.path("/opt/foo/libfoo.so.1").unlink()
    package.distribution("base", f"base/_base{SUFFIX}", "base/libfoo.so.1")
    # not without a dependency: nobody says that base is imported first
    assert only(link(package)).weight == "required"
    package.distribution("pkg", "pkg/__init__.py", f"pkg/_core{SUFFIX}", requires=["base>=1; extra == 'x'"])
    result = link(package)
    assert result.unresolved == ()
    (assumed,) = result.assumed
    assert (assumed.needed, assumed.provider) == ("libfoo.so.1", f"{SITE}/base/libfoo.so.1")
    assert assumed.why.startswith("pkg requires base, and importing base loads it")


def test_a_library_opened_by_ctypes_first(package: Tree) -> None:
    package.path(f"{SITE}/pkg/lib").mkdir()
    package.path("/opt/foo/libfoo.so.1").rename(package.path(f"{SITE}/pkg/lib/libfoo.so.1"))
    files = ("pkg/__init__.py", f"pkg/_core{SUFFIX}", "pkg/lib/libfoo.so.1")
    package.distribution("pkg", *files)
    # shipped beside the module, and nothing opens it: a broken wheel
    assert only(link(package)).nearest == f"{SITE}/pkg/lib/libfoo.so.1"
    package.write(f"{SITE}/pkg/__init__.py", "import ctypes\nctypes.CDLL('libfoo.so.1')\nfrom . import _core\n")
    (assumed,) = link(package).assumed
    assert assumed.why == f"{SITE}/pkg/__init__.py opens it by name"


def test_a_library_that_the_node_brings(tree: Tree) -> None:
    tree.python()
    tree.library("/stub/libcuda.so.1")
    tree.module("pkg/_cuda", needs=["libcuda.so.1"])
    tree.path("/stub/libcuda.so.1").unlink()
    tree.write(f"{SITE}/pkg/__init__.py", "from . import _cuda\n")
    tree.distribution("pkg", "pkg/__init__.py", f"pkg/_cuda{SUFFIX}")
    result = link(tree, backend="cuda")
    assert result.unresolved == ()
    assert [(item.name, item.objects) for item in result.host] == [("libcuda.so.1", 1)]
    fault = only(link(tree, backend="rocm"))
    assert fault.weight == "required"
    assert "it is cuda's host driver, the node is rocm" in fault.why


def test_a_plug_in_of_another_backend_is_optional(tree: Tree) -> None:
    tree.python()
    tree.library("/stub/libcudart.so.12")
    tree.library(f"{SITE}/pkg/libpkg_cuda12.so", needs=["libcudart.so.12"])
    tree.path("/stub/libcudart.so.12").unlink()
    tree.distribution("pkg", "pkg/libpkg_cuda12.so")
    fault = only(link(tree))
    assert (fault.role, fault.weight) == ("library", "optional")
    assert "it is cuda's" in fault.why


def test_a_library_that_python_code_names_is_undecided(tree: Tree) -> None:
    tree.python()
    tree.library("/stub/libtorch_cuda.so")
    tree.library(f"{SITE}/pkg/_C.so", needs=["libtorch_cuda.so"])
    tree.path("/stub/libtorch_cuda.so").unlink()
    tree.write(f"{SITE}/pkg/__init__.py", "import torch\n\ntorch.ops.load_library(path('_C'))\n")
    tree.distribution("pkg", "pkg/__init__.py", "pkg/_C.so")
    fault = only(link(tree))
    assert (fault.role, fault.weight) == ("library", "undecided")
    assert f"named at {SITE}/pkg/__init__.py:3" in fault.why
    assert fault.fix == "use the build of pkg 1.0 for cpu"


def test_code_for_another_backend_under_a_condition(tree: Tree) -> None:
    tree.python()
    tree.library("/stub/libcudart.so.12")
    tree.library("/stub/libelse.so")
    tree.module("pkg/_cuda", needs=["libcudart.so.12"])
    tree.module("pkg/_else", needs=["libelse.so"])
    for name in ("libcudart.so.12", "libelse.so"):
        tree.path(f"/stub/{name}").unlink()
    tree.write(
        f"{SITE}/pkg/__init__.py", "import torch\nif torch.cuda.is_available():\n    from . import _cuda, _else\n"
    )
    tree.distribution("pkg", "pkg/__init__.py", f"pkg/_cuda{SUFFIX}", f"pkg/_else{SUFFIX}")
    weights = {fault.needed: fault.weight for fault in link(tree).unresolved}
    assert weights == {"libcudart.so.12": "optional", "libelse.so": "undecided"}
    # on a node of that backend the condition holds
    weights = {fault.needed: fault.weight for fault in link(tree, backend="cuda").unresolved}
    assert weights == {"libcudart.so.12": "undecided", "libelse.so": "undecided"}


def test_a_library_opened_after_another_package(package: Tree) -> None:
    package.module("base/_base", needs=["libfoo.so.1"], flags=["-Wl,-rpath,/opt/foo"])
    package.write(f"{SITE}/base/lib/libfoo.so.1", package.path("/opt/foo/libfoo.so.1").read_bytes())
    package.module("base/_base", needs=["libfoo.so.1"], flags=["-Wl,-rpath,$ORIGIN/lib"])
    package.library(f"{SITE}/pkg/plugin.so", needs=["libfoo.so.1"])
    package.path(f"{SITE}/pkg/_core{SUFFIX}").unlink()
    package.distribution("base", f"base/_base{SUFFIX}", "base/lib/libfoo.so.1")
    package.distribution("pkg", "pkg/__init__.py", "pkg/plugin.so", requires=["base"])
    result = link(package)
    assert result.unresolved == ()
    assert [item.object for item in result.assumed] == [f"{SITE}/pkg/plugin.so"]


def test_the_interpreter_of_conda_lends_its_rpath(tree: Tree) -> None:
    tree.python()
    tree.library("/opt/conda/lib/libfoo.so.1")
    tree.program("/usr/bin/python3.11", flags=["-Wl,--disable-new-dtags,-rpath,/opt/conda/lib"])
    tree.module("pkg/_core", needs=["libfoo.so.1"])
    tree.distribution("pkg", f"pkg/_core{SUFFIX}")
    assert link(tree).unresolved == ()


def test_an_entrypoint_that_is_not_there(tree: Tree) -> None:
    tree.python()
    fault = only(link(tree, argv=("serve",)))
    assert (fault.needed, fault.weight, fault.searched) == ("serve", "required", (f"{VENV}/bin", "/usr/bin"))


def test_a_script_whose_interpreter_is_not_there(tree: Tree) -> None:
    tree.python()
    tree.write(f"{VENV}/bin/serve", "#!/build/venv/bin/python\n", mode=0o755)
    fault = only(link(tree, argv=("serve",)))
    assert (fault.object, fault.needed) == ("serve", "/build/venv/bin/python")


@pytest.mark.parametrize("line", ["#!/opt/venv/bin/python", "#!/usr/bin/env python", "#!/usr/bin/env -S A=1 python -u"])
def test_a_script_leads_to_its_interpreter(tree: Tree, line: str) -> None:
    tree.python()
    tree.program("/usr/bin/env")
    tree.write(f"{VENV}/bin/serve", f"{line}\n", mode=0o755)
    assert link(tree, argv=("serve",)).programs == ("/usr/bin/python3.11",)


def test_a_program_of_another_c_library(tree: Tree) -> None:
    tree.python()
    tree.program("/usr/bin/other", flags=["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"])
    fault = only(link(tree, argv=("other",)))
    assert (fault.needed, fault.weight) == ("/lib/ld-musl-x86_64.so.1", "required")
    # the same program counts less when the image does not start it
    assert only(link(tree)).weight == "optional"


def test_a_folder_that_is_configured_but_not_in_the_cache(package: Tree) -> None:
    package.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    package.write("/etc/ld.so.conf.d/foo.conf", "# ours\n/opt/foo\n")
    assert only(link(package)).fix.startswith("run ldconfig while the image is built")


def test_another_version_of_the_library_is_the_nearest(package: Tree) -> None:
    package.library(f"{SITE}/pkg/libfoo.so.2")
    package.path("/opt/foo/libfoo.so.1").unlink()
    assert only(link(package)).nearest == f"{SITE}/pkg/libfoo.so.2"


def test_many_modules_with_one_fault_are_one_fault(package: Tree) -> None:
    package.library("/usr/lib/libmid.so", needs=["libfoo.so.1"])
    for number in range(3):
        package.module(f"pkg/_m{number}", needs=["libmid.so"])
    package.module("pkg/_core", needs=["libmid.so"])
    fault = only(link(package))
    assert (fault.object, fault.weight) == ("/usr/lib/libmid.so", "required")
    assert fault.opened == f"{SITE}/pkg/_core{SUFFIX}"
