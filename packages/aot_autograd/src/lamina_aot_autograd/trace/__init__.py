"""Running a captured graph on tensors that have metadata and no data, and recording what ATen sees."""
