"""Operating systems as people and os-release spell them."""

from __future__ import annotations

import pytest

from builder.matrix import load_backend
from builder.matrix.rules.frameworks import system_libc
from builder.matrix.systems import normalise_system, same_system


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Ubuntu22.04", "ubuntu 22.04"),
        ("ubuntu-24.04", "ubuntu 24.04"),
        ("UBI9", "ubi 9"),
        ("Red Hat Enterprise Linux 9.4", "rhel 9.4"),
        ("SLES15-SP7", "sles 15 sp7"),
        ("SUSE Linux Enterprise Server 15 SP6", "sles 15 sp6"),
        ("SUSE 15.5", "sles 15 sp5"),
        ("Rocky Linux 9", "rocky 9"),
        ("rockylinux:9", "rocky 9"),
        ("Oracle Linux 8", "oracle 8"),
        ("al2023", "amazonlinux 2023"),
        ("Amazon Linux 2", "amazonlinux 2"),
        ("amzn2023", "amazonlinux 2023"),
        ("KylinOS V10", "kylin v10"),
        ("TencentOS Server 4", "tencentos 4"),
        ("almalinux 9", "almalinux 9"),
    ],
)
def test_one_name_for_each(text: str, name: str) -> None:
    assert normalise_system(text) == name
    assert normalise_system(name) == name


@pytest.mark.parametrize(
    ("asked", "cell", "same"),
    [
        ("ubuntu 22.04.5", "ubuntu 22.04", True),
        ("ubuntu 22.04", "ubuntu 22.04.5", True),
        ("ubuntu 22.04.4", "ubuntu 22.04.5", False),
        ("rhel 9", "ubi9 / rhel 9", True),
        ("rhel 9.4", "rhel 9.6", False),
        ("rhel 10", "rhel 1", False),
        ("debian 12", "debian 13", False),
    ],
)
def test_a_release_is_within_its_system(asked: str, cell: str, same: bool) -> None:
    assert same_system(asked, cell) is same


@pytest.mark.parametrize(
    ("os", "libc"),
    [
        ("ubi9", "2.34"),
        ("RHEL 9.4", "2.34"),
        ("Rocky Linux 9", "2.34"),
        ("Kylin V10 SP3", "2.28"),
        ("openEuler 24.03", "2.38"),
        ("Ubuntu 22.04 LTS", "2.35"),
        ("alpine:3.20", "musl"),
        ("centos 7", "2.17"),
        ("beos", None),
    ],
)
def test_the_c_library_of_a_system(os: str, libc: str | None) -> None:
    assert system_libc(normalise_system(os), load_backend("cuda")) == libc
