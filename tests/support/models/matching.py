"""Matching in plain Python: slow, and obviously right (docs/explanation/how-matching-works.md).

The index is tested against it. It takes signatures as they are, and nothing else of the engine: texts are compared as
texts, ids as ids, sets as sets, buckets are dictionaries of lists.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import Any

import numpy as np
import orjson

from stream_lsh.documents.document import Document
from stream_lsh.families.signer import Signer
from stream_lsh.families.tuning import component_bytes
from stream_lsh.index.batch import owners
from stream_lsh.settings.model import Settings
from support.models.minhash import jaccard
from support.models.signing import normalise, shingles

RANKED = 128  # components that candidates are ranked by


@dataclass(eq=False)
class Entry:
    """A document as the rule sees it, and what became of it."""

    document: Document
    seq: int
    text: str
    shingles: frozenset[Any]
    signature: np.ndarray
    bands: list[tuple[int, bytes]]
    log: int = 0
    verdict: dict[str, Any] | None = None

    @cached_property
    def head(self) -> np.ndarray:
        return self.signature[:RANKED]


def entries(documents: Sequence[Document], settings: Settings) -> list[Entry]:
    """Documents with their signatures; the number of each is its place."""
    signing = settings.signing
    texts = ["\x1f".join(sorted(set(d.set))) if d.set else d.text or "" for d in documents]
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    signatures = Signer(signing).sign(b"".join(data), np.cumsum(list(map(len, data))), want_shingles=False).signatures
    b, r = signing.bands, signing.rows
    found = [
        Entry(
            document, seq, normalise(text, signing), frozenset(shingles(text, signing)), signature,
            [(band, signature[band * r : band * r + r].tobytes()) for band in range(b)],
        )
        for seq, (document, text, signature) in enumerate(zip(documents, texts, signatures, strict=True))
    ]  # fmt: skip
    times: list[int] = []
    log = 0
    for entry in found:
        if entry.shingles and entry.document.time is not None:
            times = [*times, entry.document.time][-64:]
            log = max(log, median_low(times))
        entry.log = log
    return found


def floor_of(settings: Settings) -> int:
    """The least agreement of a candidate: four standard deviations below the threshold."""
    t, ranked = settings.threshold, min(RANKED, settings.signing.signature_size)
    return max(1, math.ceil((t - 4 * math.sqrt(t * (1 - t) / ranked)) * ranked - 1e-9))


def thought_of(agrees: int, settings: Settings) -> int:
    """An agreement as candidates are ranked by it: all that are thought to match alike."""
    ranked = min(RANKED, settings.signing.signature_size)
    return min(agrees, (ranked + max(1, math.ceil(settings.threshold * ranked - 1e-9))) // 2)


def rank_of(agrees: int, settings: Settings) -> int:
    """By what candidates among the kept are ranked: the same, unless they agree fully."""
    return agrees if agrees == min(RANKED, settings.signing.signature_size) else thought_of(agrees, settings)


def similarity_of(one: Entry, other: Entry, settings: Settings) -> float:
    """As it is verified: exact, or the estimate of all components, less those that are equal by accident."""
    if settings.verify == "exact":
        return jaccard(one.shingles, other.shingles)
    if one.text == other.text:
        return 1.0
    accident = 2.0 ** (-8 * component_bytes(settings.signing.rows))
    equal = int((one.signature == other.signature).sum()) / len(one.signature)
    return max(0.0, (equal - accident) / (1 - accident))


def agreement(one: Entry, other: Entry) -> int:
    return int((one.head == other.head).sum())


class Unique:
    """The rule of `compare_with = "kept"`: each document against those kept before it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.known: dict[Any, Entry] = {}
        self.texts: dict[str, Entry] = {}
        self.buckets: dict[tuple[int, bytes], list[Entry]] = defaultdict(list)
        self.kept: list[Entry] = []

    def judge(self, entry: Entry) -> dict[str, Any]:
        """The verdict on the next document, as JSON has it."""
        if not entry.shingles:
            return self._verdict(entry, "rejected")
        earlier = self.known.get(key_of(entry.document.id))
        if earlier is not None and self.sees(entry, earlier):
            if earlier.text != entry.text:
                return self._verdict(entry, "rejected")
            first = earlier.verdict
            assert first is not None
            said = {name: first[name] for name in ("duplicate_of", "similarity", "group")}
            return {**self._verdict(entry, "redelivered"), "first_kind": first["kind"], **said}
        self.known[key_of(entry.document.id)] = entry
        entry.verdict = self._compare(entry)
        if entry.verdict["kind"] == "unique":
            self.kept.append(entry)
            self.texts[entry.text] = entry
            for band in entry.bands:
                self.buckets[band].append(entry)
        return entry.verdict

    def sees(self, entry: Entry, other: Entry) -> bool:
        """Whether a document before it is in its window."""
        window = self.settings.window_ms
        return not window or entry.log - other.log <= window

    def _compare(self, entry: Entry) -> dict[str, Any]:
        return self._verdict_of(entry, *self.among_kept(entry))

    def _verdict_of(self, entry: Entry, matches: list[tuple[Entry, float]], not_compared: int) -> dict[str, Any]:
        if matches:
            same = any(other.text == entry.text for other, _ in matches)
            return self._dropped(entry, "exact_duplicate" if same else "near_duplicate", matches, not_compared)
        return {**self._verdict(entry, "unique"), "group": entry.seq} | counted(not_compared=not_compared)

    def among_kept(self, entry: Entry) -> tuple[list[tuple[Entry, float]], int]:
        """The matches with what is known to have been kept, and what was not compared."""
        same = self.texts.get(entry.text)
        if same is not None and self.sees(entry, same):
            return [(same, 1.0)], 0
        settings = self.settings
        not_compared, met = 0, dict[int, Entry]()
        for band in entry.bands:
            bucket = [other for other in self.buckets.get(band, []) if self.sees(entry, other)]
            not_compared += len(bucket) > settings.max_bucket_rows
            met.update((other.seq, other) for other in bucket[-settings.max_bucket_rows :])
        agreeing = [(agreement(entry, other), other) for other in met.values()]
        candidates = [(rank_of(agrees, settings), other) for agrees, other in agreeing if agrees >= floor_of(settings)]
        candidates.sort(key=lambda candidate: (candidate[0], candidate[1].seq), reverse=True)
        matches, left = self._verified(entry, [other for _, other in candidates])
        return matches, not_compared + left

    def _verified(self, entry: Entry, candidates: list[Entry]) -> tuple[list[tuple[Entry, float]], int]:
        """The matches among candidates, the best of which come first; how many are left when there are enough."""
        settings, compared = self.settings, 0
        matches: list[tuple[Entry, float]] = []
        for other in candidates[: settings.max_candidates]:
            if len(matches) == settings.max_verified_matches:
                break
            compared += 1
            similarity = similarity_of(entry, other, settings)
            if similarity >= settings.threshold:
                matches.append((other, similarity))
        return matches, len(candidates) - compared

    def _dropped(
        self, entry: Entry, kind: str, matches: list[tuple[Entry, float]], not_compared: int
    ) -> dict[str, Any]:
        oldest, similarity = min(matches, key=lambda match: match[0].seq)
        assert oldest.verdict is not None
        listed = sorted(matches, key=lambda match: (-match[1], match[0].seq))
        most = self.settings.max_matches or len(listed)
        return {
            **self._verdict(entry, kind), "duplicate_of": oldest.document.id, "similarity": similarity,
            "group": oldest.verdict["group"],
            "matches": [{"id": m.document.id, "seq": m.seq, "similarity": value} for m, value in listed[:most]],
            **counted(truncated=max(0, len(listed) - most), not_compared=not_compared),
        }  # fmt: skip

    def _verdict(self, entry: Entry, kind: str) -> dict[str, Any]:
        return {
            "id": entry.document.id, "seq": entry.seq, "kind": kind, "duplicate_of": None, "similarity": None,
            "group": None,
            "matches": [],
        }  # fmt: skip


class Changing(Unique):
    """The same with `on_conflict = "update"`, without event times: a removed version matches no document, and counts
    in no limit."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.standing: dict[int, Entry] = {}  # by number
        self.members: dict[int, list[Entry]] = defaultdict(list)  # dropped ones, by group

    def judge(self, entry: Entry) -> dict[str, Any]:
        old, removal = self.known.get(key_of(entry.document.id)), dict[str, Any]()
        if entry.document.deleted:
            if old is None:
                return self._verdict(entry, "deleted")
            return {**self._verdict(entry, "deleted"), "group": group_of(old), **self._remove(old)}
        if not entry.shingles:
            return self._verdict(entry, "rejected")
        if old is not None and old.text == entry.text:
            return self._again(entry, old)
        verdict = self._compare(entry)
        if old is not None:
            if verdict["kind"] == "unique" and old.seq in self.standing and self._alike(entry, old):
                verdict["group"] = group_of(old)
                del self.standing[old.seq]
                removal = {"replaces": old.seq}
            elif (removal := self._remove(old)).get("new_representative"):
                verdict = self._compare(entry)
        self.known[key_of(entry.document.id)] = entry
        entry.verdict = verdict | removal
        if verdict["kind"] == "unique":
            self._stand(entry)
        else:
            self.members[verdict["group"]].append(entry)
        return entry.verdict

    def sees(self, entry: Entry, other: Entry) -> bool:
        return other.seq in self.standing and other.document.id != entry.document.id

    def _compare(self, entry: Entry) -> dict[str, Any]:
        newest_first = sorted(self.standing.values(), key=lambda other: -other.seq)
        self.texts = {other.text: other for other in newest_first if self.sees(entry, other)}
        return super()._compare(entry)

    def _alike(self, entry: Entry, old: Entry) -> bool:
        settings = self.settings
        close = agreement(entry, old) >= floor_of(settings)
        return close and similarity_of(entry, old, settings) >= settings.threshold

    def _again(self, entry: Entry, old: Entry) -> dict[str, Any]:
        """The first verdict; what was dropped for a removed document does not name it again."""
        first = old.verdict
        assert first is not None
        of = self.known.get(key_of(first["duplicate_of"]))
        removed = first["duplicate_of"] is not None and (of is None or of.seq > old.seq)
        said = (
            {"duplicate_of": None, "similarity": None}
            if removed
            else {name: first[name] for name in ("duplicate_of", "similarity")}
        )
        verdict = self._verdict(entry, "redelivered")
        return {**verdict, "first_kind": first["kind"], "group": first["group"], **said}

    def _stand(self, entry: Entry) -> None:
        self.standing[entry.seq] = entry
        for band in entry.bands:
            self.buckets[band].append(entry)

    def _remove(self, old: Entry) -> dict[str, Any]:
        """A version goes; what the verdict says of it."""
        del self.known[key_of(old.document.id)]
        if self.standing.pop(old.seq, None) is None:
            return {"replaces": old.seq}
        live = (m for m in self.members[group_of(old)] if self.known.get(key_of(m.document.id)) is m)
        representative = next(live, None)
        if representative is None:
            return {"replaces": old.seq}
        self._stand(representative)
        return {
            "replaces": old.seq,
            "new_representative": {"id": representative.document.id, "seq": representative.seq},
        }


def group_of(entry: Entry) -> int:
    assert entry.verdict is not None
    return int(entry.verdict["group"])


class Part(Unique):
    """What one shard of several knows: what was kept up to the last two blocks, and all of its own in these."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.provisional: list[Entry] = []
        self.certain: set[int] = set()

    def enter(self, block: int) -> None:
        """Learn what was kept of all blocks but the last two."""
        decided = [entry for entry in self.provisional if entry.seq // self.settings.block < block - 1]
        self.provisional = self.provisional[len(decided) :]
        for entry in filter(was_kept, decided):
            self.texts[entry.text] = entry
            for band in entry.bands:
                self.buckets[band].append(entry)

    def among_provisional(self, entry: Entry) -> tuple[list[tuple[Entry, float]], int]:
        """The matches with what may have been kept, the oldest first; and what was not compared."""
        settings = self.settings
        not_compared, met = 0, dict[int, Entry]()
        waiting = [other for other in self.provisional if other.seq not in self.certain and self.sees(entry, other)]
        texts = [other for other in waiting if other.text == entry.text]
        for bucket in [texts, *([other for other in waiting if band in other.bands] for band in entry.bands)]:
            not_compared += len(bucket) > settings.max_bucket_rows
            oldest, newest = halves(settings.max_bucket_rows)
            read = bucket if len(bucket) <= oldest + newest else bucket[:oldest] + bucket[len(bucket) - newest :]
            met.update((other.seq, other) for other in read)
        candidates = [met[seq] for seq in sorted(met) if agreement(entry, met[seq]) >= floor_of(settings)]
        chosen = candidates
        if len(candidates) > settings.max_candidates:
            oldest, best = halves(settings.max_candidates)
            ranked = sorted(candidates, key=lambda other: (-thought_of(agreement(entry, other), settings), other.seq))
            seqs = {other.seq for other in candidates[:oldest] + ranked[:best]}
            chosen = [other for other in candidates if other.seq in seqs]
        matches, left = self._verified(entry, chosen)
        return matches, not_compared + len(candidates) - len(chosen) + left


def halves(n: int) -> tuple[int, int]:
    return n - n // 2, n // 2


class ProvisionalRows(Unique):
    """The rule of `compare_with = "kept"` with several shards, of which each learns late what was kept."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.parts = [Part(settings) for _ in range(settings.shards)]

    def _compare(self, entry: Entry) -> dict[str, Any]:
        (owner,) = owners([orjson.dumps(entry.document.id)], self.settings.shards).tolist()
        found: list[tuple[Entry, float]] = []
        not_compared = among = 0
        certain = False
        for number, part in enumerate(self.parts):
            part.enter(entry.seq // self.settings.block)
            matches, left = part.among_kept(entry)
            if not matches:
                matches, more = part.among_provisional(entry)
                matches, among = [(other, similar) for other, similar in matches if was_kept(other)], among + more
            else:
                certain = True
                if number == owner:
                    part.certain.add(entry.seq)
            found += matches
            not_compared += left
        self.parts[owner].provisional.append(entry)
        return self._verdict_of(entry, found, not_compared if certain else not_compared + among)


def was_kept(entry: Entry) -> bool:
    assert entry.verdict is not None
    return bool(entry.verdict["kind"] == "unique")


def key_of(id: Any) -> tuple[type, Any]:
    """Numbers and strings are different ids."""
    return type(id), id


def counted(**counts: int) -> dict[str, int]:
    """What a verdict says only where there is something to say."""
    return {name: count for name, count in counts.items() if count}


def unique_verdicts(documents: Sequence[Document], settings: Settings) -> list[dict[str, Any]]:
    kind = Changing if settings.on_conflict == "update" else ProvisionalRows if settings.late else Unique
    model = kind(settings)
    return [model.judge(entry) for entry in entries(documents, settings)]


def any_pairs(documents: Sequence[Document], settings: Settings) -> tuple[dict[tuple[int, int], float], set[Any]]:
    """Under `all`: Jaccard by newer and older number of all pairs that share a bucket, agree well enough to be
    candidates, and are similar; and the numbers of the documents that are stored."""
    stored: dict[Any, Entry] = {}
    buckets: dict[tuple[int, bytes], list[Entry]] = defaultdict(list)
    found: dict[tuple[int, int], float] = {}
    floor = floor_of(settings)
    for entry in entries(documents, settings):
        if not entry.shingles or key_of(entry.document.id) in stored:
            continue
        stored[key_of(entry.document.id)] = entry
        for other in {other.seq: other for band in entry.bands for other in buckets[band]}.values():
            if agreement(entry, other) >= floor:
                similarity = similarity_of(entry, other, settings)
                if similarity >= settings.threshold:
                    found[entry.seq, other.seq] = similarity
        for band in entry.bands:
            buckets[band].append(entry)
    return found, {entry.seq for entry in stored.values()}
