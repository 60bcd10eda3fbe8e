"""Where axe lies, and which of its rules count."""

from __future__ import annotations

from pathlib import Path

AXE = Path(__file__).parent / "axe-4.14.1.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
