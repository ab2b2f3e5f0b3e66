"""What one builds in an afternoon instead: FastAPI and datasketch, in memory: `python -m bench.serve_peer PORT`.

No index on disk, no order but that of the event loop, no groups, nothing bounded; what is found is checked by the
signatures. As a sketch in `bench/systems.py` it is the fastest way that its documentation gives, for one document.
"""

from __future__ import annotations

import sys
from typing import Any

import mmh3
import uvicorn
from datasketch import MinHash, MinHashLSH
from fastapi import FastAPI
from pydantic import BaseModel

from bench.systems import COMPONENTS
from bench.tokens import TOKENIZERS, shingles

THRESHOLD = 0.8


class Document(BaseModel):
    id: str
    title: str = ""
    text: str


def make_app() -> FastAPI:
    app, words = FastAPI(), TOKENIZERS["regex"][0]
    index, sketches = MinHashLSH(threshold=THRESHOLD, num_perm=COMPONENTS), dict[str, MinHash]()

    @app.post("/v1/documents")
    async def add(document: Document) -> dict[str, Any]:
        sketch = MinHash(num_perm=COMPONENTS, hashfunc=mmh3.mmh3_32_uintdigest)
        text = f"{document.title} {document.text}"
        sketch.update_batch([shingle.encode() for shingle in shingles(words(text))])
        found = [id for id in index.query(sketch) if sketches[id].jaccard(sketch) >= THRESHOLD]
        if not found and document.id not in sketches:
            index.insert(document.id, sketch)
            sketches[document.id] = sketch
        return {"id": document.id, "kind": "near_duplicate" if found else "unique", "matches": found}

    @app.get("/health/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(), port=int(sys.argv[1]), log_level="warning", access_log=False)
