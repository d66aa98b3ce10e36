"""Shared settings of this package's tests."""

import os
import sys

os.environ["LAMINA_STRICT"] = "1"
sys.path.insert(0, os.path.dirname(__file__))
