"""Node classes and probes of the live machine."""

from builder.node.classes import load_node_classes, node_class
from builder.node.labels import labels
from builder.node.probe import probe
from builder.node.values import NodeClass

__all__ = ["NodeClass", "labels", "load_node_classes", "node_class", "probe"]
