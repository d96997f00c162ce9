"""Executors under contract: the twin's, and a real agent's. Makes the agents' harness importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "live"))
