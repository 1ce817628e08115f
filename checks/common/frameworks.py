"""One small face for each framework: devices, memory, matmul. Nothing here runs on another device than asked for.

Each class takes the framework's name of the device and raises `NoDevice` when the framework does not see it. Matrices
are lists of rows of ints; `matmul` gives rows of floats and the seconds of one run after a first one.
"""

from __future__ import annotations

import importlib
import time


class NoDevice(Exception):
    """The framework works but sees no such device."""


def timed(run, wait):
    """Result of a second run and its seconds; the first one compiles and warms caches."""
    wait(run())
    start = time.perf_counter()
    result = run()
    wait(result)
    return result, time.perf_counter() - start


class Numpy:
    """NumPy: the CPU and its BLAS."""

    def __init__(self, device):
        import numpy

        if device != "cpu":
            raise NoDevice(f"numpy computes on the cpu, not on {device}")
        self.numpy = numpy

    def devices(self):
        """The CPU."""
        return ["cpu"]

    def memory(self):
        """Nothing of its own."""
        return {}

    def matmul(self, left, right):
        """float32 product."""
        a = self.numpy.array(left, dtype="float32")
        b = self.numpy.array(right, dtype="float32")
        result, seconds = timed(lambda: a @ b, lambda _: None)
        return result.tolist(), seconds


class Cupy:
    """CuPy on CUDA or ROCm."""

    def __init__(self, device):
        import cupy

        self.cupy = cupy
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise NoDevice(f"cupy sees no {device} device")

    def devices(self):
        """Product names."""
        runtime = self.cupy.cuda.runtime
        return [runtime.getDeviceProperties(n)["name"].decode() for n in range(runtime.getDeviceCount())]

    def memory(self):
        """Free and total bytes of the first device."""
        free, total = self.cupy.cuda.runtime.memGetInfo()
        return {"device_memory_free_bytes": free, "device_memory_bytes": total}

    def matmul(self, left, right):
        """float32 product."""
        a = self.cupy.asarray(left, dtype="float32")
        b = self.cupy.asarray(right, dtype="float32")
        wait = self.cupy.cuda.Stream.null.synchronize
        result, seconds = timed(lambda: a @ b, lambda _: wait())
        return result.tolist(), seconds


class Torch:
    """PyTorch: cpu, cuda (also ROCm), xpu, a device that a plug-in registers, or xla through torch_xla.

    Neuron has two plug-ins of one name: the native one registers a device `neuron`, the older goes through torch_xla.
    """

    def __init__(self, device):
        import torch

        if device == "neuron":
            device = "neuron" if hasattr(torch, "neuron") else "xla"
        self.torch, self.kind = torch, device
        if device == "xla":
            import torch_xla.core.xla_model as xla

            self.xla, self.device = xla, xla.xla_device()
            hardware = xla.xla_device_hw(self.device)
            if hardware == "CPU":
                raise NoDevice("torch_xla runs on the cpu here: it sees no accelerator")
            return
        if device != "cpu":
            self.space = getattr(torch, device, None)
            if self.space is None or not self.space.is_available():
                raise NoDevice(f"torch {torch.__version__} sees no {device} device")
        self.device = torch.device(device)

    def devices(self):
        """Product names."""
        if self.kind == "cpu":
            return ["cpu"]
        if self.kind == "xla":
            return [self.xla.xla_device_hw(self.device)]
        names = getattr(self.space, "get_device_name", lambda _: self.kind)
        return [names(number) for number in range(self.space.device_count())]

    def memory(self):
        """Free and total bytes of the first device, where the framework tells."""
        query = getattr(getattr(self, "space", None), "mem_get_info", None)
        if query is None:
            return {}
        free, total = query()
        return {"device_memory_free_bytes": free, "device_memory_bytes": total}

    def matmul(self, left, right):
        """float32 product, on the device and checked to be there."""
        a = self.torch.tensor(left, dtype=self.torch.float32).to(self.device)
        b = self.torch.tensor(right, dtype=self.torch.float32).to(self.device)
        result, seconds = timed(lambda: a @ b, self.wait)
        if result.device.type != self.device.type:
            raise NoDevice(f"the product lies on {result.device}, not on {self.device}")
        return result.cpu().tolist(), seconds

    def wait(self, _):
        """Until the device is done."""
        if self.kind == "xla":
            self.xla.mark_step()
            self.xla.wait_device_ops()
        elif self.kind != "cpu":
            self.space.synchronize()


class Jax:
    """JAX on a platform: cpu, cuda, rocm, tpu, neuron."""

    def __init__(self, device):
        import jax

        self.jax = jax
        try:
            self.found = jax.devices(device)
        except RuntimeError as error:
            raise NoDevice(f"jax {jax.__version__} sees no {device} device: {error}") from error

    def devices(self):
        """Product names."""
        return [device.device_kind for device in self.found]

    def memory(self):
        """Limit and use of the first device, where the platform tells."""
        stats = self.found[0].memory_stats() or {}
        return {"device_memory_bytes": stats["bytes_limit"]} if "bytes_limit" in stats else {}

    def matmul(self, left, right):
        """float32 product, on the device and checked to be there."""
        numpy = self.jax.numpy
        a = self.jax.device_put(numpy.array(left, dtype="float32"), self.found[0])
        b = self.jax.device_put(numpy.array(right, dtype="float32"), self.found[0])
        result, seconds = timed(lambda: a @ b, lambda product: product.block_until_ready())
        if self.found[0] not in result.devices():
            raise NoDevice(f"the product lies on {result.devices()}, not on {self.found[0]}")
        return result.tolist(), seconds


class OnnxRuntime:
    """ONNX Runtime with one execution provider, on a one-node model made here."""

    def __init__(self, device):
        import onnxruntime

        self.ort, self.provider = onnxruntime, device
        if device not in onnxruntime.get_available_providers():
            raise NoDevice(f"onnxruntime {onnxruntime.__version__} has no {device}")

    def devices(self):
        """The provider."""
        return [self.provider]

    def memory(self):
        """Not told."""
        return {}

    def matmul(self, left, right):
        """float32 product; the session must not have fallen back to another provider."""
        import numpy

        options = self.ort.SessionOptions()
        options.log_severity_level = 3
        session = self.ort.InferenceSession(matmul_model(), options, providers=[self.provider])
        if session.get_providers()[0] != self.provider:
            raise NoDevice(f"onnxruntime fell back to {session.get_providers()[0]}")
        feed = {"A": numpy.array(left, dtype="float32"), "B": numpy.array(right, dtype="float32")}
        result, seconds = timed(lambda: session.run(None, feed)[0], lambda _: None)
        return result.tolist(), seconds


class OpenVino:
    """OpenVINO on one of its devices: CPU, GPU, NPU."""

    def __init__(self, device):
        import openvino

        self.openvino, self.device = openvino, device
        self.core = openvino.Core()
        if not [name for name in self.core.available_devices if name.partition(".")[0] == device]:
            raise NoDevice(f"openvino {openvino.__version__} sees no {device}, only {self.core.available_devices}")

    def devices(self):
        """Product names."""
        found = [name for name in self.core.available_devices if name.partition(".")[0] == self.device]
        return [self.core.get_property(name, "FULL_DEVICE_NAME") for name in found]

    def memory(self):
        """Total bytes, where the device's plug-in tells."""
        try:
            return {"device_memory_bytes": int(self.core.get_property(self.device, "GPU_DEVICE_TOTAL_MEM_SIZE"))}
        except RuntimeError:
            return {}

    def matmul(self, left, right):
        """float32 product: the plug-ins would rather compute in half precision, which does not hold the sums."""
        import numpy

        a, b = numpy.array(left, dtype="float32"), numpy.array(right, dtype="float32")
        model = self.core.read_model(matmul_model())
        model.reshape({"A": list(a.shape), "B": list(b.shape)})
        compiled = self.core.compile_model(model, self.device, {"INFERENCE_PRECISION_HINT": "f32"})
        result, seconds = timed(lambda: compiled({"A": a, "B": b})["C"], lambda _: None)
        return result.tolist(), seconds


def matmul_model():
    """An ONNX model of one MatMul of two float matrices of any size, as bytes (onnx.proto, IR version 8, opset 13)."""

    def field(number, payload):
        return bytes([number << 3 | 2]) + varint(len(payload)) + payload

    def number(key, value):
        return bytes([key << 3]) + varint(value)

    def varint(value):
        out = b""
        while value > 0x7F:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])

    def matrix(name, rows, columns):
        shape = field(1, field(2, rows)) + field(1, field(2, columns))
        return field(1, name) + field(2, field(1, number(1, 1) + field(2, shape)))

    node = field(1, b"A") + field(1, b"B") + field(2, b"C") + field(4, b"MatMul")
    graph = (
        field(1, node)
        + field(2, b"matmul")
        + field(11, matrix(b"A", b"m", b"k"))
        + field(11, matrix(b"B", b"k", b"n"))
        + field(12, matrix(b"C", b"m", b"n"))
    )
    return number(1, 8) + field(7, graph) + field(8, number(2, 13))


KINDS = {
    "numpy": Numpy,
    "cupy": Cupy,
    "torch": Torch,
    "jax": Jax,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}


def open_framework(options):
    """The framework that the options name, on the device they name; its plug-ins are imported first."""
    chosen = options["framework"]
    for module in chosen.get("imports", ()):
        importlib.import_module(module)
    return KINDS[chosen["module"]](chosen["device"])
