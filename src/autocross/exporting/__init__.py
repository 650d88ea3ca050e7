"""Models in other forms: JSON, Python, C, SQL, ONNX and PMML. All are renderings of one description."""
