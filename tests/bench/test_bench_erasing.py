"""bench/erasing.py: what is deleted."""

from __future__ import annotations

import json
from pathlib import Path

from bench.erasing import ids


def test_deletions_are_spread_over_the_documents_before(tmp_path: Path) -> None:
    file = tmp_path / "documents"
    file.write_text("".join(json.dumps({"id": f"d{i}", "text": "a"}) + "\n" for i in range(20)))
    assert [json.loads(line) for line in ids(file, 12, 5)] == [
        {"id": id, "deleted": True} for id in ("d0", "d5", "d10")
    ]  # fmt: skip
