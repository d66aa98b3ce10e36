"""TorchBench models that are written here, by kind of input."""
