"""Makes the differential harness importable by the tests of this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if sys.version_info < (3, 11):
    collect_ignore = ["test_exception_groups.py"]
