"""The layout both resolvers print."""

from __future__ import annotations

import pytest

from builder.lock.annotations import Annotated, read_annotated

UV = """\
jinja2==3.1.6 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via torch
    # from https://pypi.org/simple
torch==2.13.0+cpu
    # via
    #   builder-lock-roots (pyproject.toml)
    #   -c pins.txt
    #   torch-npu
    # from file:///wheels
Torch_NPU[extra]==2.13.0 ; sys_platform == 'linux'
    # via -r roots.in
""".format(a="a" * 64, b="b" * 64)


def test_pins_hashes_parents_and_indexes() -> None:
    assert read_annotated(UV) == (
        Annotated(
            name="jinja2",
            version="3.1.6",
            hashes=("a" * 64, "b" * 64),
            parents=("torch",),
            index="https://pypi.org/simple",
        ),
        Annotated(name="torch", version="2.13.0+cpu", hashes=(), parents=("torch-npu",), index="file:///wheels"),
        Annotated(name="torch-npu", version="2.13.0", hashes=(), parents=(), index=None),
    )


@pytest.mark.parametrize(
    ("comment", "parents"),
    [
        ("# via requests[socks]", ("requests",)),
        ("# via Zope.Interface", ("zope-interface",)),
        ("# via a, b", ()),
        ("# unrelated", ()),
        ("# via\n    #   b\n    #   a\n    #   a", ("a", "b")),
    ],
)
def test_parents(comment: str, parents: tuple[str, ...]) -> None:
    (found,) = read_annotated(f"leaf==1.0\n    {comment}\n")
    assert found.parents == parents


def test_nothing_is_nothing() -> None:
    assert read_annotated("# header\n\n-c bounds.txt\n") == ()
