"""The answers of a service under idempotency keys, as far as erasing has to know them (`serve.retries`)."""

from __future__ import annotations

from stream_lsh.index.store.rocksdb import Store, name_key

RETRIES = "retry/"  # how their names in the store begin


def erase_answers(store: Store, since: float) -> None:
    """Erase those that were written by this time, in seconds since 1970: they may name what is to be erased. A request
    with such a key is a new one then."""
    if old := [name for name, value in store.items(RETRIES) if value["at"] < since + 1]:
        store.write(dict.fromkeys(map(name_key, old)))
