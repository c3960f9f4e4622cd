"""The comparison of bench/peers is no package; its modules are found beside each other."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/peers"))
