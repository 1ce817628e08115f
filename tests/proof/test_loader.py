"""The loader's rules, each compared with the real loader run inside the same tree."""

from __future__ import annotations

import random
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.proof.loader import Process
from builder.proof.search import Searcher, SearchRules
from tests.proof.trees import LOADER, TRIPLET, Tree, root_of

OLD = "-Wl,--disable-new-dtags"
NEW = "-Wl,--enable-new-dtags"


def rpath(value: str) -> list[str]:
    return [OLD, f"-Wl,-rpath,{value}"]


def runpath(value: str) -> list[str]:
    return [NEW, f"-Wl,-rpath,{value}"]


def host_level(tree: Tree) -> int:
    """The x86-64 level of this machine, in the loader's own words."""
    text = tree.run(LOADER, "--help").stdout
    return max((int(level) for level in re.findall(r"x86-64-v([2-4]) \(supported", text)), default=1)


def started(tree: Tree, path: str, env: Mapping[str, str] | None = None, *, level: int = 1) -> Process:
    root = root_of(tree)
    rules = SearchRules.of_image(root, machine=62, bits=64, env=env or {}, workdir="/", level=level)
    process = Process(Searcher(root, rules))
    assert process.start(path)
    return process


def ours(process: Process) -> dict[str, str | None]:
    """As `ld.so --list` prints it: names asked for, with the file each led to."""
    found: dict[str, str | None] = {}
    for item in process.objects:
        for name in item.object.needed:
            loaded = process.loaded(name)
            found[name] = loaded.path if loaded else None
    return found


def agree(tree: Tree, path: str, env: Mapping[str, str] | None = None, *, level: int = 1) -> dict[str, str | None]:
    said = tree.loader_says(path, env=env)
    mine = ours(started(tree, path, env, level=level))
    # the loader prints an object once, under the first name it was asked for
    assert {name: path for name, path in mine.items() if name in said} == said
    assert {path for path in mine.values() if path and not path.endswith("ld-linux-x86-64.so.2")} == {
        path for path in said.values() if path
    }
    return said


def test_rpath_of_the_program_reaches_what_its_libraries_need(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so")
    oracle.library("/opt/b/libb.so", needs=["liba.so"])
    oracle.program("/app/p", needs=["libb.so"], flags=rpath("/opt/b:/opt/a"))
    assert agree(oracle, "/app/p")["liba.so"] == "/opt/a/liba.so"


def test_runpath_is_not_inherited(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so")
    oracle.library("/opt/b/libb.so", needs=["liba.so"])
    oracle.program("/app/p", needs=["libb.so"], flags=runpath("/opt/b:/opt/a"))
    assert agree(oracle, "/app/p")["liba.so"] is None
    (missing,) = started(oracle, "/app/p").missing
    assert (missing.asking.path, missing.name) == ("/opt/b/libb.so", "liba.so")
    assert missing.chain == ("/app/p", "/opt/b/libb.so")


def test_runpath_hides_the_rpath_of_those_above(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so")
    oracle.library("/opt/b/libb.so", needs=["liba.so"], flags=runpath("/nowhere"))
    oracle.program("/app/p", needs=["libb.so"], flags=rpath("/opt/b:/opt/a"))
    assert agree(oracle, "/app/p")["liba.so"] is None


def test_library_path_comes_after_rpath_and_before_runpath(oracle: Tree) -> None:
    for folder in ("one", "two"):
        oracle.library(f"/opt/{folder}/liba.so")
    oracle.program("/app/old", needs=["liba.so"], flags=rpath("/opt/one"))
    oracle.program("/app/new", needs=["liba.so"], flags=runpath("/opt/one"))
    env = {"LD_LIBRARY_PATH": "/opt/two"}
    assert agree(oracle, "/app/old", env)["liba.so"] == "/opt/one/liba.so"
    assert agree(oracle, "/app/new", env)["liba.so"] == "/opt/two/liba.so"


def test_library_path_separators_and_relative_parts(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so")
    oracle.library("/libcwd.so")
    oracle.program("/app/p", needs=["liba.so", "libcwd.so"])
    found = agree(oracle, "/app/p", {"LD_LIBRARY_PATH": "/nowhere;opt/a:"})
    assert None not in found.values()


def test_origin_is_where_the_library_was_found(oracle: Tree) -> None:
    oracle.library("/real/libx.so", flags=runpath("$ORIGIN"))
    oracle.library("/link/liby.so")
    oracle.library("/real/libx.so", needs=["liby.so"], flags=runpath("${ORIGIN}"))
    oracle.link("/link/libx.so", "../real/libx.so")
    oracle.program("/app/p", needs=["libx.so"], flags=runpath("$ORIGIN/../link"))
    assert agree(oracle, "/app/p")["liby.so"] == "/app/../link/liby.so"


def test_lib_and_platform_tokens(oracle: Tree) -> None:
    oracle.library("/opt/lib/x86_64-linux-gnu/liba.so")
    oracle.program("/app/p", needs=["liba.so"], flags=runpath("/opt/$LIB:/opt/${LIB}/x"))
    assert agree(oracle, "/app/p")["liba.so"] == "/opt/lib/x86_64-linux-gnu/liba.so"


def test_default_folders_in_their_order(oracle: Tree) -> None:
    for folder in ("/usr/lib", "/lib", "/usr/lib/x86_64-linux-gnu"):
        oracle.library(f"{folder}/liba.so")
    oracle.program("/app/p", needs=["liba.so"])
    assert agree(oracle, "/app/p")["liba.so"] == "/usr/lib/x86_64-linux-gnu/liba.so"


def test_the_cache_comes_before_the_default_folders(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so")
    oracle.library("/usr/lib/liba.so")
    oracle.library("/opt/b/liblate.so")
    oracle.program("/app/p", needs=["liba.so", "liblate.so"])
    oracle.write("/etc/ld.so.conf", "/opt/a\n")
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin") or pytest.skip("there is no ldconfig")
    subprocess.run([ldconfig, "-r", str(oracle.root)], check=True, capture_output=True)
    oracle.write("/etc/ld.so.conf", "/opt/a\n/opt/b\n")
    found = agree(oracle, "/app/p")
    assert found["liba.so"] == "/opt/a/liba.so"
    # what is configured but not in the cache is not found
    assert found["liblate.so"] is None


def test_objects_without_default_search(oracle: Tree) -> None:
    oracle.library("/usr/lib/liba.so")
    oracle.library("/opt/b/libb.so", needs=["liba.so"], flags=["-Wl,-z,nodefaultlib"])
    oracle.program("/app/p", needs=["libb.so"], flags=runpath("/opt/b"))
    assert agree(oracle, "/app/p")["liba.so"] is None


def test_processor_levels(oracle: Tree) -> None:
    for folder in ("", "/glibc-hwcaps/x86-64-v2", "/glibc-hwcaps/x86-64-v3", "/glibc-hwcaps/x86-64-v4"):
        oracle.library(f"/opt/a{folder}/liba.so")
    oracle.program("/app/p", needs=["liba.so"], flags=runpath("/opt/a"))
    level = host_level(oracle)
    found = agree(oracle, "/app/p", level=level)["liba.so"]
    assert found == ("/opt/a/liba.so" if level == 1 else f"/opt/a/glibc-hwcaps/x86-64-v{level}/liba.so")
    assert ours(started(oracle, "/app/p", level=1))["liba.so"] == "/opt/a/liba.so"


def test_a_library_in_the_process_answers_to_its_soname(oracle: Tree) -> None:
    oracle.library("/opt/a/libplain.so", soname="libreal.so.1")
    oracle.link("/opt/c/libplain.so", "../a/libplain.so")
    oracle.library("/opt/b/libb.so", needs=["libreal.so.1"])
    oracle.built["libplain"] = oracle.path("/opt/a/libplain.so")
    oracle.program("/app/p", needs=["libb.so"], flags=[*rpath("/opt/b"), "-Wl,--no-as-needed"])
    # opened by its path, as a preload is, the file answers to the name inside it
    env = {"LD_PRELOAD": "/opt/a/libplain.so"}
    said = oracle.loader_says("/app/p", env=env)
    root = root_of(oracle)
    rules = SearchRules.of_image(root, machine=62, bits=64, env=env, workdir="/", level=1)
    process = Process(Searcher(root, rules))
    process.start("/app/p", preload=("/opt/a/libplain.so",))
    assert "libreal.so.1" not in said
    assert process.missing == []
    assert started(oracle, "/app/p").missing[0].name == "libreal.so.1"


def test_two_names_of_one_file_are_one_object(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so", soname="")
    oracle.path("/opt/a/libalias.so").hardlink_to(oracle.path("/opt/a/liba.so"))
    oracle.library("/stub/liba.so")
    oracle.library("/stub/libalias.so")
    oracle.program("/app/p", needs=["liba.so", "libalias.so"], flags=runpath("/opt/a"))
    process = started(oracle, "/app/p")
    assert oracle.loader_says("/app/p")["liba.so"] == "/opt/a/liba.so"
    assert process.loaded("libalias.so") is process.loaded("liba.so")


def test_the_first_to_ask_decides_for_all(oracle: Tree) -> None:
    for folder in ("one", "two"):
        oracle.library(f"/opt/{folder}/libx.so")
    oracle.library("/opt/b/libb.so", needs=["libx.so"], flags=runpath("/opt/two"))
    oracle.library("/opt/c/libc1.so", needs=["libb.so"], flags=runpath("/opt/b"))
    oracle.library("/opt/c/libc2.so", needs=["libx.so"], flags=runpath("/opt/one"))
    oracle.program("/app/p", needs=["libc1.so", "libc2.so"], flags=runpath("/opt/c"))
    # breadth first: libc2 asks before libb does
    assert agree(oracle, "/app/p")["libx.so"] == "/opt/one/libx.so"


def test_a_file_for_another_processor_is_passed_over(oracle: Tree) -> None:
    oracle.library("/opt/two/liba.so")
    oracle.program("/app/p", needs=["liba.so"], flags=runpath("/opt/one:/opt/two"))
    data = bytearray(oracle.path("/opt/two/liba.so").read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    oracle.write("/opt/one/liba.so", bytes(data))
    assert agree(oracle, "/app/p")["liba.so"] == "/opt/two/liba.so"


def test_a_file_that_is_no_elf_file_ends_the_search(oracle: Tree) -> None:
    oracle.library("/opt/two/liba.so")
    oracle.program("/app/p", needs=["liba.so"], flags=runpath("/opt/one:/opt/two"))
    oracle.write("/opt/one/liba.so", "INPUT(-la)\n" + "x" * 100)
    assert "invalid ELF header" in oracle.run("/app/p").stderr
    (missing,) = started(oracle, "/app/p").missing
    assert missing.outcome.broken == "/opt/one/liba.so"


def test_a_needed_name_with_a_slash(oracle: Tree) -> None:
    oracle.library("/opt/a/liba.so", soname="/opt/a/liba.so")
    oracle.program("/app/p", needs=["/opt/a/liba.so"])
    assert agree(oracle, "/app/p")["/opt/a/liba.so"] == "/opt/a/liba.so"


def test_merged_usr(oracle: Tree) -> None:
    shutil.move(oracle.path("/lib"), oracle.path("/usr/lib"))
    oracle.path("/lib").symlink_to("usr/lib")
    oracle.program("/app/p", needs=[])
    assert agree(oracle, "/app/p")["libc.so.6"] == f"{TRIPLET}/libc.so.6"


def sysv_hash(name: str) -> int:
    """Of System V ABI, "Hash Table"."""
    value = 0
    for letter in name.encode():
        value = (value << 4) + letter
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


VERSIONED = "int old(void) { return 1; }\n"
NEWER = VERSIONED + "int young(void) { return 2; }\n"


def test_a_version_that_the_library_does_not_define(oracle: Tree, tmp_path: Path) -> None:
    (tmp_path / "one.map").write_text("V_1 { old; };\n")
    (tmp_path / "two.map").write_text("V_1 { old; };\nV_2 { young; } V_1;\n")
    oracle.library("/new/liba.so", code=NEWER, flags=[f"-Wl,--version-script={tmp_path}/two.map"])
    oracle.library("/opt/libuser.so", needs=["liba.so"], code="int young(void); int use(void) { return young(); }")
    oracle.library("/opt/liba.so", code=VERSIONED, flags=[f"-Wl,--version-script={tmp_path}/one.map"])
    oracle.program("/app/p", needs=["libuser.so"], flags=rpath("/opt"))
    assert "version `V_2' not found (required by /opt/libuser.so)" in oracle.run("/app/p").stderr
    (fault,) = started(oracle, "/app/p").versions
    assert (fault.asking.path, fault.provider.path, fault.need.version) == ("/opt/libuser.so", "/opt/liba.so", "V_2")


def test_a_weak_need_of_a_version(oracle: Tree, tmp_path: Path) -> None:
    (tmp_path / "one.map").write_text("V_1 { old; };\n")
    (tmp_path / "two.map").write_text("V_1 { old; };\nV_2 { young; } V_1;\n")
    oracle.library("/new/liba.so", code=NEWER, flags=[f"-Wl,--version-script={tmp_path}/two.map"])
    weak = "__attribute__((weak)) int young(void); int use(void) { return young ? young() : 0; }"
    oracle.library("/opt/libuser.so", needs=["liba.so"], code=weak)
    # GNU ld copies the flag from the definition; other linkers set it when all references are weak
    name = struct.pack("<IH", sysv_hash("V_2"), 0)
    data = oracle.path("/opt/libuser.so").read_bytes()
    assert data.count(name) == 1
    oracle.write("/opt/libuser.so", data.replace(name, struct.pack("<IH", sysv_hash("V_2"), 2)))
    oracle.library("/opt/liba.so", code=VERSIONED, flags=[f"-Wl,--version-script={tmp_path}/one.map"])
    oracle.program("/app/p", needs=["libuser.so"], flags=rpath("/opt"))
    assert oracle.run("/app/p").returncode == 0
    (fault,) = started(oracle, "/app/p").versions
    assert fault.need.weak


def test_a_library_without_versions_is_taken_for_granted(oracle: Tree, tmp_path: Path) -> None:
    (tmp_path / "two.map").write_text("V_1 { old; };\nV_2 { young; } V_1;\n")
    oracle.library("/new/liba.so", code=NEWER, flags=[f"-Wl,--version-script={tmp_path}/two.map"])
    oracle.library("/opt/libuser.so", needs=["liba.so"], code="int young(void); int use(void) { return young(); }")
    oracle.library("/opt/liba.so", code=NEWER)
    oracle.program("/app/p", needs=["libuser.so"], flags=rpath("/opt"))
    assert oracle.run("/app/p").returncode == 0
    assert started(oracle, "/app/p").versions == []


@pytest.mark.parametrize("seed", range(12))
def test_random_trees(oracle: Tree, seed: int) -> None:
    """Libraries scattered over folders, some twice, with search paths of every kind."""
    choose = random.Random(seed)  # noqa: S311 -- the same trees every time
    folders = ["/opt/a", "/opt/b", "/opt/b/sub", "/usr/lib", "/srv/x", TRIPLET]
    words = [*folders, "$ORIGIN", "$ORIGIN/..", "$ORIGIN/sub", "/opt/$LIB", ""]
    names = [f"lib{letter}.so" for letter in "abcdefg"]

    def flags() -> list[str]:
        kind = choose.choice(["none", "old", "old", "new"])
        if kind == "none":
            return []
        return [OLD if kind == "old" else NEW, "-Wl,-rpath," + ":".join(choose.sample(words, 3))]

    for number, name in enumerate(names):
        needs = choose.sample(names[:number], min(number, choose.randrange(3)))
        for folder in choose.sample(folders, choose.choice([1, 1, 2])):
            oracle.library(f"{folder}/{name}", needs=needs, flags=flags())
    oracle.program("/app/p", needs=choose.sample(names, 3), flags=flags())
    env = {"LD_LIBRARY_PATH": ":".join(choose.sample(folders, 2))} if choose.random() < 0.5 else {}
    agree(oracle, "/app/p", env)
