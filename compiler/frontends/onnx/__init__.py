"""ONNX models -> network graphs with float parameters."""
