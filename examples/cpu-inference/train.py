# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "onnx", "scikit-learn"]
# ///
"""Makes digits/model.onnx and digits/samples.json: run once, by hand, with `uv run train.py`.

Trains one hidden layer on scikit-learn's 8x8 handwritten digits (no download) and writes it as an ONNX graph whose
input `images` is float32 [batch, 64] in 0..16 and whose output `probabilities` is float32 [batch, 10]. The samples are
held-out images that the network reads right, with their labels: the answers an image of the service is checked against.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).parent / "digits"
SAMPLES = 16


def main() -> None:
    """Train, check, write both files."""
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.25, random_state=7)
    network = MLPClassifier(hidden_layer_sizes=(32,), max_iter=600, random_state=7).fit(train_x, train_y)
    print(f"accuracy on {len(test_y)} held-out images: {network.score(test_x, test_y):.3f}")

    weights = {}
    for layer, (matrix, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True)):
        weights[f"w{layer}"], weights[f"b{layer}"] = matrix.astype(np.float32), bias.astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["images", "w0", "b0"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "w1", "b1"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        ],
        "digits",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    (HERE / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))

    right = network.predict(test_x) == test_y
    chosen = np.flatnonzero(right)[:SAMPLES]
    samples = [{"image": test_x[i].astype(int).tolist(), "digit": int(test_y[i])} for i in chosen]
    lines = ",\n".join(json.dumps(sample) for sample in samples)
    (HERE / "samples.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
