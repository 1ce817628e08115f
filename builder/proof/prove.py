"""The static proof in one function: image and node class in, verdict with evidence out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from builder.audit.tables import Tables, load_tables
from builder.errors import CannotTell, Refused
from builder.events import Reporter
from builder.image.labels import BACKEND, TOOLKIT
from builder.matrix.load import Backend, load_backend
from builder.names import GFX_OVERRIDE, Digest
from builder.node.values import NodeClass
from builder.proof.demands import cpu_needs, device_coverage, driver_need, level_number
from builder.proof.dists import Distributions
from builder.proof.image import Image, open_image
from builder.proof.libraries import Libraries
from builder.proof.link import Linker, matches
from builder.proof.objects import MACHINES
from builder.proof.reach import Reach
from builder.proof.rootfs import RootFs
from builder.proof.search import SearchRules, glibc_version
from builder.proof.values import Answer, ImageConfig, LinkResult, Proof, Weight, worst_answer
from builder.registry.values import Repository
from builder.store import Store

__all__ = ["prove", "prove_image"]

_ANSWERS: Mapping[Weight, Answer] = {"required": "refused", "undecided": "unknown", "optional": "proven"}
"""What a fault of that weight makes of the whole."""

_TOOLKIT_PACKAGES = {
    "cuda": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11"),
    "rocm": ("rocm-sdk-core", "rocm"),
}
_TORCH_LABELS = {"cuda": r"cu(\d+)(\d)", "rocm": r"rocm(\d+)\.(\d+)(?:\.\d+)?"}
_TOOLKIT_ENV = {"cuda": ("CUDA_VERSION",), "rocm": ("ROCM_VERSION",), "npu": ("CANN_VERSION", "ASCEND_TOOLKIT_VERSION")}


def prove(
    repository: Repository,
    digest: Digest,
    node: NodeClass,
    *,
    store: Store,
    reporter: Reporter,
    allow: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> Proof:
    """Whether the image `digest` (a manifest, or an index of several platforms) will load on `node`.

    `allow` holds glob patterns of paths in the image whose faults are known and accepted; `env` is what a set-up
    script or the orchestrator adds to the image's own environment. Reads every layer once and remembers what it saw in
    the store.
    """
    image = open_image(repository, digest, arch=node.arch).with_env(env or {})
    root = RootFs.of(image.index(store=store, reporter=reporter))
    return prove_image(image, root, node, backend=load_backend(node.backend), tables=load_tables(), allow=allow)


def prove_image(
    image: Image, root: RootFs, node: NodeClass, *, backend: Backend, tables: Tables, allow: tuple[str, ...] = ()
) -> Proof:
    """The proof from an image's tree and the tables; reads Python sources again only where a module does not load."""
    config = image.config
    _same_kind(config, node)
    rules = SearchRules.of_image(
        root,
        machine=MACHINES[node.arch],
        bits=64,
        env=config.env,
        workdir=config.workdir,
        level=level_number(node.cpu_level),
    )
    linker = Linker(
        root,
        config,
        rules,
        backend=node.backend,
        libraries=Libraries(tables),
        reach=Reach(lambda paths: image.files(root, paths)),
        allow=allow,
    )
    link = linker.link()
    native = tuple((path, item) for path, item in root.objects() if item.machine == rules.machine)
    cpu = cpu_needs(native, node, linker.weight)
    devices = device_coverage(native, node, backend, linker.weight)
    toolkit, where = _toolkit(node.backend, config, linker.dists)
    driver = driver_need(backend, node, toolkit=toolkit, toolkit_source=where, env=config.env)
    doubts = tuple(_doubts(root, rules, link, allow))
    forced = tuple(_forced(config, node))
    reasons = (
        *_reasons(link, doubts),
        *forced,
        *(f"{need.object} {need.why}" for need in cpu if need.answer != "proven"),
        *(f"{code.object}: {code.why}" for code in devices if code.answer != "proven"),
        *((driver.why,) if driver.answer != "proven" else ()),
    )
    answers: tuple[Answer, ...] = (
        *(_ANSWERS[fault.weight] for fault in link.unresolved),
        *(_ANSWERS[version.weight] for version in link.versions),
        *(need.answer for need in cpu),
        *(code.answer for code in devices),
        *(("unknown",) if doubts else ()),
        *(("refused",) if forced else ()),
        driver.answer,
    )
    release = glibc_version(root, rules.machine)
    return Proof(
        image=image.digest,
        node_class=node.name,
        backend=node.backend,
        answer=worst_answer(answers),
        reasons=reasons,
        glibc=".".join(str(part) for part in release) if release != (0,) else None,
        link=link,
        cpu=cpu,
        devices=devices,
        driver=driver,
        notes=tuple(_notes(link, node, cpu_said=bool(cpu))),
    )


def _same_kind(config: ImageConfig, node: NodeClass) -> None:
    made_for = config.labels.get(BACKEND)
    if made_for is not None and made_for != node.backend:
        raise Refused(
            f"the image is for {made_for}, node class {node.name} is {node.backend}",
            why=f"its label {BACKEND} says so",
            fix=f"build it with --backend {node.backend}, or name a class of {made_for}",
        )
    if config.arch is not None and config.arch != node.arch:
        raise Refused(
            f"the image is for {config.architecture}, node class {node.name} is {node.arch}",
            why="the kernel starts none of its programs",
            fix=f"build the image for {node.arch}",
        )
    if config.arch is None:
        raise CannotTell(
            f"the image is for {config.architecture or 'an architecture it does not name'}",
            why="only amd64 and arm64 are known here",
            fix="build it with its architecture in the configuration",
        )


def _forced(config: ImageConfig, node: NodeClass) -> Iterator[str]:
    """The image makes every node take its device for another, which only the operator of one class may do."""
    text = config.env.get(GFX_OVERRIDE)
    if text is not None and node.backend == "rocm":
        yield (
            f"the image sets {GFX_OVERRIDE}={text} for whatever device it meets: take it out of the image, and "
            f'record it on the class whose operator takes the risk (env = ["{GFX_OVERRIDE}={text}"])'
        )


def _doubts(root: RootFs, rules: SearchRules, link: LinkResult, allow: tuple[str, ...]) -> Iterator[str]:
    """What keeps a clean link from being a proof."""
    if not link.programs and not any(fault.weight == "required" for fault in link.unresolved):
        yield "the image names no program to start and has no Python on its PATH"
    if glibc_version(root, rules.machine) == (0,):
        yield "there is no glibc in the image: the search rules of other C libraries are not known here"
    for item in link.host:
        if item.inside is not None and not any(matches(pattern, (item.inside,)) for pattern in allow):
            yield (
                f"{item.name} is found in the image, at {item.inside}, instead of the node's own: a driver library "
                "must fit the kernel driver, and forward compatibility is for data-centre devices only"
            )


def _reasons(link: LinkResult, doubts: tuple[str, ...]) -> Iterator[str]:
    for fault in link.unresolved:
        if fault.weight != "optional":
            yield f"{fault.object} needs {fault.needed}: {fault.why}"
    for version in link.versions:
        if version.weight != "optional":
            yield f"{version.object} needs {version.version} of {version.library}: {version.why}"
    yield from doubts


def _notes(link: LinkResult, node: NodeClass, *, cpu_said: bool) -> Iterator[str]:
    names = ", ".join(item.name for item in link.host if item.inside is None)
    if names:
        yield f"taken from the node's driver, symbol versions not checked: {names}"
    if node.arch == "x86_64" and not cpu_said:
        yield "no object declares a processor level above x86-64-v1; code chosen at run time is not judged"
    if link.foreign:
        yield f"{link.foreign} ELF files for other processors (device code among them) are not linked"


def _toolkit(backend: str, config: ImageConfig, dists: Distributions) -> tuple[str | None, str]:
    """The toolkit version the image is for, and what says so."""
    if config.labels.get(TOOLKIT):
        return config.labels[TOOLKIT], f"label {TOOLKIT}"
    for name in _TOOLKIT_PACKAGES.get(backend, ()):
        found = dists.by_name.get(name)
        if found is not None:
            version = re.match(r"\d+\.\d+", found.version)
            if version:
                return version[0], f"{found.name} {found.version}"
    torch = dists.by_name.get("torch")
    built = re.search(rf"\+{_TORCH_LABELS[backend]}$", torch.version) if torch and backend in _TORCH_LABELS else None
    if torch is not None and built:
        return f"{built[1]}.{built[2]}", f"torch {torch.version}"
    for name in _TOOLKIT_ENV.get(backend, ()):
        version = re.match(r"\d+(?:\.\d+){1,2}", config.env.get(name, ""))
        if version:
            return version[0], f"{name}={config.env[name]}"
    return None, ""
