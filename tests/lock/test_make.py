"""Locks made by uv against real indexes on loopback: targets, pins, labels, hashes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from builder.errors import BadInput
from builder.lock.engine import CannotResolve, NoSuchPackage, OnlySources
from builder.lock.policy import PackagePolicy
from builder.lock.search import MissingIndex
from builder.lock.trap import blocked
from builder.matrix.values import IndexPin
from builder.names import Digest
from builder.project.values import BackendOptions
from builder.wheels.settings import read_index_settings
from builder.wheels.transport import IndexUnreachable
from tests.lock.conftest import Locker, stack
from tests.lock.indexes import Index, make_wheel


def torch_world(folder: Path, default: Index, vendor: Index) -> IndexPin:
    """torch as it is published: the CUDA build without a label on the default index, others on the vendor's."""
    default.add(make_wheel(folder, "torch", "2.13.0", requires=["nvidia-cublas", "triton", "filelock"]))
    default.add(make_wheel(folder, "filelock", "4.0"))
    default.add(make_wheel(folder, "triton", "3.7.1"))
    default.add(make_wheel(folder, "nvidia-cublas", "13.1"))
    default.add(make_wheel(folder, "torch-npu", "2.13.0", requires=["torch==2.13.0"]))
    default.add(make_wheel(folder, "sentence-transformers", "5.0", requires=["torch>=1.11"]))
    vendor.add(make_wheel(folder / "vendor", "torch", "2.13.0+cpu", requires=["filelock"]))
    vendor.add(make_wheel(folder / "vendor", "filelock", "9.9"))
    return IndexPin(index=vendor.url, packages=("torch", "torchvision"))


def versions(lock: object) -> dict[str, str]:
    return {package.name: package.version for package in lock.packages}  # type: ignore[attr-defined]


def test_a_lock_holds_file_hash_size_index_and_edges(locker: Locker, default: Index, tmp_path: Path) -> None:
    app = default.add(make_wheel(tmp_path, "app-lib", "1.0", requires=["leaf>=1", "other; extra=='more'"]))
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    leaf = default.add(make_wheel(tmp_path, "leaf", "1.2"))
    lock = locker.lock(stack("cpu"), "App_Lib")
    first, second = lock.packages
    assert (first.name, first.version, first.file) == ("app-lib", "1.0", app.name)
    assert first.sha256 == Digest.of_file(app)
    assert first.size == app.stat().st_size
    assert first.url == default.file_url(app)
    assert first.index == default.url
    assert first.requires == ("leaf",)
    assert (second.file, second.requires) == (leaf.name, ())
    assert lock.roots() == ("app-lib",)
    assert lock.undated == ()
    assert lock.engine.startswith("uv ")


def test_files_uploaded_later_do_not_count(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"), uploaded="2020-01-01T00:00:00Z")
    default.add(make_wheel(tmp_path, "leaf", "2.0"), uploaded="2025-06-01T00:00:00Z")
    assert versions(locker.lock(stack("cpu"), "leaf")) == {"leaf": "2.0"}
    assert versions(locker.lock(stack("cpu"), "leaf", exclude_newer="2025-01-01T00:00:00Z")) == {"leaf": "1.0"}


def test_an_index_without_upload_times_is_used_and_named(locker: Locker, vendor: Index, tmp_path: Path) -> None:
    vendor.add(make_wheel(tmp_path, "leaf", "1.0"))
    lock = locker.with_settings(index_url=vendor.url).lock(stack("cpu"), "leaf")
    assert lock.undated == (vendor.url,)


@pytest.mark.parametrize(
    ("arch", "glibc", "python", "chosen"),
    [
        ("x86_64", "2.36", "3.11", "ext-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"),
        ("aarch64", "2.36", "3.11", "ext-1.0-cp311-cp311-manylinux_2_28_aarch64.whl"),
        ("x86_64", "2.17", "3.11", "ext-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"),
        ("x86_64", "2.36", "3.13", "ext-1.0-cp313-cp313-manylinux_2_34_x86_64.whl"),
    ],
)
def test_the_target_decides_and_not_this_machine(
    locker: Locker, default: Index, tmp_path: Path, arch: str, glibc: str, python: str, chosen: str
) -> None:
    for tag in (
        *("cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-win_amd64"),
        *(
            "cp311-cp311-manylinux_2_28_aarch64",
            "cp313-cp313-manylinux_2_34_x86_64",
            "cp311-cp311-musllinux_1_2_x86_64",
        ),
    ):
        default.add(make_wheel(tmp_path, "ext", "1.0", tag=tag, requires=["old; python_version<'3.12'"]))
    default.add(make_wheel(tmp_path, "old", "1.0"))
    lock = locker.lock(stack("cpu", python=python), "ext", arch=arch, glibc=glibc)  # type: ignore[arg-type]
    assert lock.packages[0].file == chosen
    assert ("old" in versions(lock)) == (python == "3.11")


def test_a_wheel_for_a_newer_glibc_is_refused(locker: Locker, default: Index, tmp_path: Path) -> None:
    """FR-25: tagged for glibc 2.35, and the base has 2.34."""
    default.add(make_wheel(tmp_path, "connector", "0.19", tag="cp311-cp311-manylinux_2_35_x86_64"))
    assert locker.lock(stack("cuda"), "connector", glibc="2.35").packages[0].version == "0.19"
    with pytest.raises(CannotResolve) as caught:
        locker.lock(stack("cuda"), "connector", glibc="2.34")
    assert "connector==0.19" in caught.value.what
    assert "glibc 2.34" in caught.value.what
    assert "manylinux_2_34_x86_64" in caught.value.why
    assert "manylinux_2_35_x86_64" in caught.value.why
    assert "rebuild" in caught.value.fix


def test_a_package_that_is_published_as_source_only_is_named(locker: Locker, default: Index, tmp_path: Path) -> None:
    sdist = tmp_path / "sourceful-1.0.tar.gz"
    sdist.write_bytes(b"never opened")
    default.add(sdist)
    default.add(make_wheel(tmp_path, "app", "1.0", requires=["sourceful"]))
    with pytest.raises(OnlySources) as caught:
        locker.lock(stack("cpu"), "app")
    assert caught.value.exit_code == 1
    assert "sourceful" in caught.value.what


def test_a_requirement_that_no_index_has_is_a_wrong_question(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    with pytest.raises(NoSuchPackage) as caught:
        locker.lock(stack("cpu"), "leaf", "laef")
    assert caught.value.exit_code == 2
    assert "laef" in caught.value.what


def test_a_dependency_that_no_index_has_is_a_no(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0", requires=["nowhere"]))
    with pytest.raises(CannotResolve) as caught:
        locker.lock(stack("cpu"), "leaf")
    assert caught.value.exit_code == 1
    assert "nowhere" in caught.value.why


def test_an_index_that_does_not_answer_is_named(locker: Locker) -> None:
    with pytest.raises(IndexUnreachable) as caught:
        locker.with_settings(index_url="http://127.0.0.1:9/simple").lock(stack("cpu"), "leaf")
    assert caught.value.exit_code == 3
    assert "127.0.0.1:9" in str(caught.value)


def test_nothing_to_lock_is_a_wrong_question(locker: Locker) -> None:
    with pytest.raises(BadInput, match="nothing to lock"):
        locker.lock(stack("cpu"))


def test_a_transitive_framework_is_not_replaced_in_silence(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path, policy: PackagePolicy
) -> None:
    """FR-01: only sentence-transformers is asked for; torch is the CUDA build and the lock is refused."""
    pin = torch_world(tmp_path, default, vendor)
    cpu = stack("cpu", "torch==2.13.0+cpu", pins=(pin,))
    lock = locker.lock(cpu, "sentence-transformers")
    assert versions(lock)["torch"] == "2.13.0"
    found = blocked(lock, policy)
    assert [item.package for item in found] == ["torch", "nvidia-cublas", "triton"]
    assert found[1].chain == ("sentence-transformers", "torch", "nvidia-cublas")
    assert "torch==2.13.0+cpu" in found[1].fix
    assert vendor.url in found[1].fix
    assert all(item.size for item in found)
    mended = locker.lock(cpu, "sentence-transformers", "torch==2.13.0+cpu")
    assert blocked(mended, policy) == ()
    assert versions(mended) == {"filelock": "4.0", "sentence-transformers": "5.0", "torch": "2.13.0+cpu"}


def test_a_pinned_package_comes_from_its_index_and_others_do_not(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    pin = torch_world(tmp_path, default, vendor)
    lock = locker.lock(stack("npu", "torch==2.13.0+cpu", pins=(pin,)), "torch-npu==2.13.0", "torch==2.13.0+cpu")
    by_name = {package.name: package for package in lock.packages}
    assert by_name["torch"].index == vendor.url
    # the vendor's index has a newer filelock; it is not pinned there
    assert (by_name["filelock"].version, by_name["filelock"].index) == ("4.0", default.url)
    assert by_name["torch-npu"].requires == ("torch",)
    assert lock.undated == (vendor.url,)


def test_a_requirement_without_a_label_gets_the_stacks_build_and_a_note(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    """FR-21: the label is chosen first; a pin without one is pointed out."""
    make = tmp_path / "rocm"
    for label in ("rocm7.15.0a20260728", "rocm10.1.0a20260807"):
        vendor.add(make_wheel(make, "torch", f"2.12.0+{label}"))
    default.add(make_wheel(tmp_path, "torch", "2.12.0", requires=["nvidia-cublas"]))
    default.add(make_wheel(tmp_path, "nvidia-cublas", "13.1"))
    pin = IndexPin(index=vendor.url, packages=("torch",))
    wanted = "torch==2.12.0+rocm10.1.0a20260807"
    lock = locker.lock(stack("rocm", wanted, pins=(pin,)), "torch==2.12.0")
    assert versions(lock) == {"torch": "2.12.0+rocm10.1.0a20260807"}
    assert any("torch==2.12.0" in line and wanted in line for line in locker.notes.lines)


def test_packages_of_the_pinned_family_follow_when_others_pull_them_in(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    vendor.add(make_wheel(tmp_path, "torch", "2.9.0+rocm7.2", requires=["pytorch-triton-rocm==3.5"]))
    vendor.add(make_wheel(tmp_path, "pytorch-triton-rocm", "3.5"))
    default.add(make_wheel(tmp_path / "pypi", "pytorch-triton-rocm", "0.0.1"))
    pin = IndexPin(index=vendor.url, packages=("pytorch-triton-rocm", "torch"))
    lock = locker.lock(stack("rocm", "torch==2.9.0+rocm7.2", pins=(pin,)), "torch")
    assert {package.name: package.index for package in lock.packages} == {
        "pytorch-triton-rocm": vendor.url,
        "torch": vendor.url,
    }
    assert lock.packages[1].requires == ("pytorch-triton-rocm",)


def test_a_family_member_known_to_the_default_index_too_is_taken_from_the_pin(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    vendor.add(make_wheel(tmp_path, "torch", "2.9.0+xpu", requires=["torchvision"]))
    vendor.add(make_wheel(tmp_path, "torchvision", "0.24.0+xpu"))
    default.add(make_wheel(tmp_path, "torchvision", "0.99.0"))
    pin = IndexPin(index=vendor.url, packages=("torch", "torchvision"))
    lock = locker.lock(stack("xpu", "torch==2.9.0+xpu", pins=(pin,)), "torch")
    assert versions(lock)["torchvision"] == "0.24.0+xpu"


@pytest.mark.parametrize("no_index", [False, True])
def test_a_find_links_folder_stands_in_for_a_pin_out_of_reach(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path, no_index: bool
) -> None:
    torch_world(tmp_path, default, vendor)
    folder = tmp_path / "links"
    wheel = make_wheel(folder, "torch", "2.13.0+cpu", requires=["filelock"])
    make_wheel(folder, "torch", "2.12.0+cpu")
    make_wheel(folder, "filelock", "1.0")
    pin = IndexPin(index="http://127.0.0.1:9/cpu", packages=("torch",))
    cpu = stack("cpu", "torch==2.13.0+cpu", pins=(pin,))
    lock = locker.with_settings(find_links=(str(folder),), no_index=no_index).lock(cpu, "torch")
    torch = next(package for package in lock.packages if package.name == "torch")
    assert (torch.version, torch.index, unquote(torch.url)) == ("2.13.0+cpu", folder.as_uri(), f"file://{wheel}")
    assert (torch.sha256, torch.size) == (Digest.of_file(wheel), wheel.stat().st_size)
    assert torch.file == wheel.name
    assert any("127.0.0.1:9" in line and wheel.name in line for line in locker.notes.lines)


@pytest.mark.parametrize(
    "found", ["torch-2.12.0+cpu-py3-none-any.whl", "torch-2.13.0+cpu-cp313-cp313-linux_x86_64.whl"]
)
def test_a_missing_index_is_named_when_no_file_stands_in(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path, found: str
) -> None:
    torch_world(tmp_path, default, vendor)
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / found).write_bytes(b"never opened")
    pin = IndexPin(index="http://127.0.0.1:9/cpu", packages=("torch",))
    with pytest.raises(MissingIndex) as caught:
        locker.with_settings(find_links=(str(folder),)).lock(stack("cpu", "torch==2.13.0+cpu", pins=(pin,)), "torch")
    assert caught.value.exit_code == 3
    assert "http://127.0.0.1:9/cpu" in caught.value.what
    assert "torch==2.13.0+cpu" in caught.value.fix


def test_a_label_in_a_packages_own_metadata_brings_its_index(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    """FR-12: torch-npu 2.9.0 asks for torch 2.9.0+cpu; the project names no torch, and there is no conflict."""
    default.add(make_wheel(tmp_path, "torch", "2.9.0", requires=["nvidia-cublas"]))
    default.add(make_wheel(tmp_path, "vllm-ascend", "0.15.0rc1", requires=["torch==2.9.0", "torch-npu==2.9.0"]))
    default.add(make_wheel(tmp_path, "torch-npu", "2.9.0", requires=["torch==2.9.0+cpu"]))
    vendor.add(make_wheel(tmp_path / "vendor", "torch", "2.9.0+cpu"))
    npu = stack("npu", "torch==2.13.0+cpu", pins=(IndexPin(index=vendor.url, packages=("torch",)),))
    lock = locker.lock(npu, "vllm-ascend==0.15.0rc1", "torch-npu==2.9.0")
    assert versions(lock)["torch"] == "2.9.0+cpu"
    missing = stack("npu", pins=(IndexPin(index="http://127.0.0.1:9/cpu", packages=("torch",)),))
    with pytest.raises(MissingIndex) as caught:
        locker.lock(missing, "vllm-ascend==0.15.0rc1", "torch-npu==2.9.0")
    assert "http://127.0.0.1:9/cpu" in caught.value.what
    assert "torch==2.9.0+cpu" in caught.value.fix


def test_versions_that_do_not_belong_together_are_refused(locker: Locker, default: Index, tmp_path: Path) -> None:
    """FR-11: torch_npu 2.8.0.post2 belongs to torch 2.8.0."""
    for version in ("2.8.0", "2.12.0"):
        default.add(make_wheel(tmp_path, "torch", version))
    default.add(make_wheel(tmp_path, "torch-npu", "2.8.0.post2", requires=["torch==2.8.0"]))
    with pytest.raises(CannotResolve) as caught:
        locker.lock(stack("npu"), "torch==2.12.0", "torch_npu==2.8.0.post2")
    assert "torch==2.8.0" in caught.value.why


@pytest.mark.parametrize("place", ["find-links", "extra index"])
def test_a_labelled_build_is_never_slipped_in(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path, place: str
) -> None:
    """`torch==2.13.0` matches 2.13.0+cpu too; what one machine happens to offer must not decide what is built."""
    torch_world(tmp_path, default, vendor)
    if place == "find-links":
        locker.with_settings(find_links=(str(tmp_path / "vendor"),))
    else:
        locker.with_settings(extra_index_urls=(vendor.url,))
    lock = locker.lock(stack("npu", "torch==2.13.0+cpu"), "torch-npu==2.13.0")
    assert versions(lock)["torch"] == "2.13.0"


@pytest.mark.parametrize("no_index", [True, False])
def test_a_labelled_build_is_taken_when_there_is_no_other(
    locker: Locker, default: Index, tmp_path: Path, no_index: bool
) -> None:
    """Without internet, a folder with the right build and nothing else is enough, and it is said."""
    folder = tmp_path / "links"
    make_wheel(folder, "torch", "2.13.0+cpu")
    make_wheel(folder, "torch-npu", "2.13.0", requires=["torch==2.13.0"])
    lock = locker.with_settings(find_links=(str(folder),), no_index=no_index).lock(stack("npu"), "torch-npu")
    assert versions(lock)["torch"] == "2.13.0+cpu"
    assert any("only a labelled build" in line for line in locker.notes.lines)


def test_no_interpreter_need_be_on_path(locker: Locker, default: Index, tmp_path: Path) -> None:
    """A tool in an environment of its own (pipx, uvx) is found by name, the Python it runs on is not."""
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    locker.environ["PATH"] = str(tmp_path / "nothing-here")
    assert versions(locker.lock(stack("cpu"), "leaf")) == {"leaf": "1.0"}


def test_a_label_that_names_no_backend_is_like_any_version(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    patched = make_wheel(tmp_path / "links", "leaf", "1.0+corp.1")
    lock = locker.with_settings(find_links=(str(patched.parent),)).lock(stack("cpu"), "leaf==1.0")
    assert versions(lock) == {"leaf": "1.0+corp.1"}


def test_of_equal_versions_the_default_indexs_file_is_taken(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    vendor.add(make_wheel(tmp_path, "leaf", "1.0"))
    vendor.add(make_wheel(tmp_path, "only-here", "1.0"))
    lock = locker.with_settings(extra_index_urls=(vendor.url,)).lock(stack("cpu"), "leaf", "only-here")
    assert [package.index for package in lock.packages] == [default.url, vendor.url]


def test_indexes_of_uvs_and_pips_own_files_are_used(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    vendor.add(make_wheel(tmp_path, "only-here", "1.0"))
    linked = make_wheel(tmp_path / "links", "linked", "1.0")
    uv_toml, pip_conf = tmp_path / ".config/uv/uv.toml", tmp_path / ".config/pip/pip.conf"
    for path in (uv_toml, pip_conf):
        path.parent.mkdir(parents=True)
    uv_toml.write_text(f'[[index]]\nname = "mirror"\nurl = "{default.url}"\ndefault = true\n')
    pip_conf.write_text(f"[global]\nextra-index-url = {vendor.url}\nfind-links = {linked.parent}\n")
    locker.settings = read_index_settings(locker.environ)
    lock = locker.lock(stack("cpu"), "leaf", "only-here", "linked")
    assert [package.index for package in lock.packages] == [default.url, linked.parent.as_uri(), vendor.url]


def test_an_index_known_to_uv_alone_gives_a_package_it_has_first(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    """uv's rule against dependency confusion: the first index that has a name is the only one asked for it."""
    default.add(make_wheel(tmp_path, "private", "9.0"))
    vendor.add(make_wheel(tmp_path, "private", "1.0"))
    locker.environ["UV_INDEX"] = vendor.url
    locker.settings = replace(read_index_settings(locker.environ), index_url=default.url)
    (private,) = locker.lock(stack("cpu"), "private").packages
    assert (private.version, private.index) == ("1.0", vendor.url)


def test_a_pinned_package_is_not_outranked_by_another_index(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    """FR-24: the release on the default index ranks above the candidate for CUDA 12.9, and is built for CUDA 13."""
    default.add(make_wheel(tmp_path, "vllm", "0.20.2"))
    vendor.add(make_wheel(tmp_path, "vllm", "0.20.2rc1.dev233+g5497ffbf7.cu129"))
    lock = locker.lock(stack("cuda", pins=(IndexPin(index=vendor.url, packages=("vllm",)),)), "vllm")
    assert versions(lock) == {"vllm": "0.20.2rc1.dev233+g5497ffbf7.cu129"}


def test_overrides_replace_what_packages_ask_for(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "app", "1.0", requires=["leaf<2"]))
    for version in ("1.0", "2.0"):
        default.add(make_wheel(tmp_path, "leaf", version))
    options = {"cpu": BackendOptions(env={}, overrides=("leaf==2.0",))}
    assert versions(locker.lock(stack("cpu"), "app", backends=options))["leaf"] == "2.0"


def test_an_older_locks_versions_stay_where_they_fit(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    first = locker.lock(stack("cpu"), "leaf")
    default.add(make_wheel(tmp_path, "leaf", "2.0"))
    default.add(make_wheel(tmp_path, "more", "1.0"))
    kept = locker.lock(stack("cpu"), "leaf", "more", previous=first)
    assert versions(kept) == {"leaf": "1.0", "more": "1.0"}
    assert versions(locker.lock(stack("cpu"), "leaf", "more")) == {"leaf": "2.0", "more": "1.0"}
    assert versions(locker.lock(stack("cpu"), "leaf>1", previous=first)) == {"leaf": "2.0"}


@pytest.mark.parametrize("html", [True, False])
def test_the_digest_is_that_of_the_file_never_of_its_metadata(
    locker: Locker, default: Index, tmp_path: Path, html: bool
) -> None:
    """FR-23: the page gives the metadata file's digest alone; only the file of the target is fetched and hashed."""
    default.html = html
    mine = make_wheel(tmp_path, "torch", "2.11.0+cu128", tag="cp311-cp311-manylinux_2_28_x86_64")
    other = make_wheel(tmp_path, "torch", "2.11.0+cu128", tag="cp314-cp314-manylinux_2_28_aarch64")
    for wheel in (mine, other):
        default.add(wheel, hashed=False, metadata_hash=True)
    lock = locker.lock(stack("cuda"), "torch==2.11.0+cu128")
    (torch,) = lock.packages
    assert torch.sha256 == Digest.of_file(mine)
    assert torch.sha256 != Digest.of(default.offers["torch"][0].metadata)
    assert default.fetched(mine) != []
    assert default.fetched(other) == []


def test_credentials_of_an_index_stay_out_of_the_lock(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.login = ("reader", "s3cret")
    default.add(make_wheel(tmp_path, "leaf", "1.0"), hashed=False)
    url = default.url.replace("http://", "http://reader:s3cret@")
    (leaf,) = locker.with_settings(index_url=url).lock(stack("cpu"), "leaf").packages
    assert leaf.index == default.url
    assert "s3cret" not in leaf.url


def test_offline_answers_from_the_cache_or_says_so(locker: Locker, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    first = locker.lock(stack("cpu"), "leaf")
    before = len(default.requests)
    again = locker.lock(stack("cpu"), "leaf", offline=True)
    assert versions(again) == versions(first)
    assert len(default.requests) == before
    with pytest.raises((IndexUnreachable, CannotResolve, NoSuchPackage)):
        locker.lock(stack("cpu"), "another", offline=True)


def test_one_lock_per_accelerator_holds_what_one_lock_for_all_could_not(
    locker: Locker, default: Index, vendor: Index, tmp_path: Path
) -> None:
    """FR-22: labels differ, markers cannot tell accelerators apart, so each backend has its own lock and index map."""
    for label in ("cpu", "cu118", "musa.4.0.0"):
        vendor.add(make_wheel(tmp_path, "torch", f"2.9.0+{label}"))
    default.add(make_wheel(tmp_path, "torch-npu", "2.9.0", requires=["torch==2.9.0+cpu"]))
    pin = IndexPin(index=vendor.url, packages=("torch",))
    wanted = {"npu": ["torch==2.9.0+cpu", "torch-npu==2.9.0"], "cuda": ["torch==2.9.0+cu118"]}
    wanted["musa"] = ["torch==2.9.0+musa.4.0.0"]
    locks = {name: locker.lock(stack(name, pins=(pin,)), *lines) for name, lines in wanted.items()}
    assert [versions(lock)["torch"] for lock in locks.values()] == ["2.9.0+cpu", "2.9.0+cu118", "2.9.0+musa.4.0.0"]
