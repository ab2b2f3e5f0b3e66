"""`stream-lsh audit`, compared with the verdicts of a small feed, one by one."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import figures, run
from support.json_lines import read_lines, write_lines

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.audit.estimates import Estimate, stratified, wilson
from stream_lsh.audit.groups import SHOWN, read_groups
from stream_lsh.audit.rows import read_rows
from stream_lsh.cli.stored import stored_settings
from stream_lsh.index.index import Index
from stream_lsh.index.rows import layout

WORDS = [f"{a}{b}" for a in "bcdfghklmnprst" for b in ("ake", "oli", "un", "erra", "ist", "ombo")]
FOOTER = " ".join(f"all rights of part {n} are reserved" for n in range(12))
HOSTILE = "</script><img src=x onerror=alert(1)>"
SOURCED = ("--source-field", "from", "--time-field", "at")
UPDATES = (*SOURCED, "--on-conflict", "update", "--deleted-field", "gone")


def feed(documents: int = 600, *, changes: bool = False) -> list[dict[str, Any]]:
    """Texts, edits of earlier ones, and a source whose documents are mostly a footer; with updates and deletions."""
    chance, found, texts = random.Random(20261127), list[dict[str, Any]](), [FOOTER]
    for n in range(documents):
        text, kind, source = " ".join(chance.choices(WORDS, k=chance.randint(20, 60))), chance.random(), "daily"
        if kind < 0.1:
            text, source = " ".join(chance.choices(WORDS, k=4)) + " " + FOOTER, "footer"
        elif kind < 0.5:
            words = chance.choice(texts).split()
            for place in chance.sample(range(len(words)), min(chance.randint(0, 3), len(words))):
                words[place] = chance.choice(WORDS)
            text, source = " ".join(words), chance.choice(["daily", HOSTILE, "صحيفة", 17])
        texts.append(text)
        document = {"id": f"d{n}", "text": text, "from": source, "at": 1_700_000_000 + 400 * n}
        if changes and n and chance.random() < 0.2:
            document["id"] = f"d{chance.randrange(n)}"
            if chance.random() < 0.3:
                document = {"id": document["id"], "gone": True, "at": document["at"]}
        found.append(document)
    return found


def fed(folder: Path, documents: list[dict[str, Any]], *options: object) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Make an index of documents. Returns the verdict on each, and the document."""
    run(
        "dedup", write_lines(folder / "feed", documents), "--index", folder / "index", "--unique", folder / "unique",
        "--verdicts", folder / "verdicts", "--quiet", *(options or SOURCED),
    )  # fmt: skip
    verdicts = read_lines(folder / "verdicts")
    return list(zip(verdicts, documents, strict=True))


def kept_at_the_end(judged: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The latest versions that were not deleted. A superseded one has the verdict that it would have as a duplicate."""
    seen: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}
    for verdict, document in judged:
        more = [verdict["new_representative"]] if "new_representative" in verdict else []
        for new in more + verdict.get("new_representatives", []):
            before, text = seen[new["id"]]
            seen[new["id"]] = {**before, "kind": "unique"}, text
        if verdict["kind"] == "deleted":
            seen.pop(verdict["id"], None)
        elif verdict["kind"] in ("unique", "near_duplicate", "exact_duplicate"):
            seen[verdict["id"]] = verdict, document
        if (superseded := verdict.get("supersedes")) is not None:
            before, text = seen[superseded]
            kind = "exact_duplicate" if text["text"] == document["text"] else "near_duplicate"
            drop = {"kind": kind, "similarity": verdict["similarity"], "group": verdict["group"]}
            seen[superseded] = {**before, **drop, "superseded_by": verdict["id"]}, text
    return list(seen.values())


def audited(folder: Path, *options: object) -> dict[str, Any]:
    return figures("audit", "--index", folder / "index", *options)


def report_of(folder: Path, *options: object) -> tuple[str, dict[str, Any]]:
    """The report, and its data."""
    run("audit", "--index", folder / "index", "--html", folder / "report.html", *options)
    page = (folder / "report.html").read_text(encoding="utf-8")
    data = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    return page, json.loads(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    fed(folder, feed())
    return folder


@pytest.mark.parametrize(("changes", "options"), [
    (False, ()), (True, UPDATES), (True, (*UPDATES, "--shards", "2", "--decision-lag", "32")),
    (False, (*SOURCED, "--verify", "signature")),
    (False, (*SOURCED, "--keep", "newest")), (True, (*UPDATES, "--keep", "longest")),
    (True, (*UPDATES, "--keep", "newest", "--shards", "2", "--decision-lag", "32")),
])  # fmt: skip
def test_counts_are_those_of_the_verdicts(tmp_path: Path, changes: bool, options: tuple[str, ...]) -> None:
    judged = kept_at_the_end(fed(tmp_path, feed(changes=changes), *options))
    found = audited(tmp_path)
    drops = [(verdict, document) for verdict, document in judged if verdict["kind"] != "unique"]
    kinds = Counter(verdict["kind"] for verdict, _ in judged)
    assert found["documents"]["live"] == len(judged)
    assert found["documents"]["kept"] == kinds["unique"]
    assert found["documents"]["near_duplicates"] == kinds["near_duplicate"]
    assert found["documents"]["exact_duplicates"] == kinds["exact_duplicate"]
    assert (found["documents"]["removed"] > 0) is changes
    sources = Counter(document["from"] for _, document in judged)
    dropped = Counter(document["from"] for _, document in drops)
    assert {one["source"]: (one["documents"], one["dropped"]) for one in found["sources"]["most"]} == {
        source: (number, dropped[source]) for source, number in sources.items()
    }
    assert found["sources"]["without"] == found["sources"]["rest"]["documents"] == 0
    width = 60_000 * found["times"]["minutes"]
    bars = Counter(
        (1000 * document["at"] // width * width, verdict["kind"] != "unique") for verdict, document in judged
    )
    assert {(at, drop): n for at, *both in found["times"]["bars"] for drop, n in enumerate(both) if n} == bars
    assert sum(n for _, n in found["similarities"]) == sum(n for _, _, n in found["sizes"]) == len(drops)
    for one in found["thresholds"]["higher"]:
        assert one["fewer"] == sum(verdict["similarity"] < one["threshold"] for verdict, _ in drops)
    groups = Counter(verdict["group"] for verdict, _ in drops)
    assert {one["group"]: one["drops"] for one in found["groups"]["largest"]}.items() <= groups.items()
    assert found["groups"]["largest"][0]["drops"] == max(groups.values())
    for one in found["groups"]["fastest"]:
        times = sorted(document["at"] for verdict, document in drops if verdict["group"] == one["group"])
        assert one["drops_in_an_hour"] == max(sum(end - 3600 < time <= end for time in times) for end in times)
    assert found["figures"]["dropped_share"] == len(drops) / len(judged)
    large = {source: number for source, number in sources.items() if number >= 20}
    assert found["figures"]["dropped_share_of_source"] == max(dropped[source] / large[source] for source in large)
    together = Counter((verdict["group"], document["from"]) for verdict, document in drops)
    assert found["figures"]["group_share_of_source"] == max(
        number / large[source] for (_, source), number in together.items() if source in large
    )


def test_a_footer_that_wipes_out_a_source_is_named(folder: Path) -> None:
    _, found = report_of(folder)
    (suspect,) = (one for one in found["shared_texts"] if one["set"])
    assert suspect["source"] == "footer" and suspect["share_of_source"] > 0.9 and suspect["shared_share"] > 0.9
    assert suspect["similar_without"] <= 2
    (marked,) = [suspect["text"][a:b] for a, b in suspect["spans"]]
    assert marked == FOOTER
    limit = float(suspect["set"].partition("threshold = ")[2].partition(":")[0])
    similar = [v["similarity"] for v in read_lines(folder / "verdicts") if v["group"] == suspect["group"]][1:]
    assert sum(similarity < limit for similarity in similar) >= 0.9 * len(similar)


def test_pairs_are_next_to_the_threshold(folder: Path) -> None:
    _, found = report_of(folder)
    near = sorted(v["similarity"] for v in read_lines(folder / "verdicts") if v["kind"] == "near_duplicate")
    assert [pair["similarity"] for pair in found["pairs"]["above"]] == near[:16]
    kept = {v["id"] for v in read_lines(folder / "verdicts") if v["kind"] == "unique"}
    below = found["pairs"]["below"]
    assert below and all(0.6 <= pair["similarity"] < 0.8 for pair in below)
    texts = {document["id"]: document["text"] for document in read_lines(folder / "feed")}
    for pair in below:
        assert {pair["id"], pair["duplicate_of"]} <= kept
        sets = [shingles(texts[pair[name]]) for name in ("id", "duplicate_of")]
        assert pair["similarity"] == len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        assert pair["sides"][0]["text"] == texts[pair["duplicate_of"]]
    (lower,) = (one for one in found["thresholds"]["lower"] if one["threshold"] == 0.7)
    order = [document for document in read_lines(folder / "feed") if document["id"] in kept]
    sets = [shingles(document["text"]) for document in order]
    true = sum(any(0.7 <= len(b & a) / len(b | a) < 0.8 for a in sets[:n]) for n, b in enumerate(sets))
    assert 0.9 * true <= lower["share_of_kept"] * len(kept) <= true
    assert lower["low"] <= lower["share_of_kept"] <= lower["high"]


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return set(zip(words, words[1:], words[2:], strict=False))


@pytest.mark.parametrize("options", [(), ("--shards", "2")])
def test_superseded_documents_are_paired_with_what_superseded_them(tmp_path: Path, options: tuple[str, ...]) -> None:
    judged = kept_at_the_end(fed(tmp_path, feed(), *SOURCED, "--keep", "newest", *options))
    superseded = {verdict["id"]: (verdict, document) for verdict, document in judged if "superseded_by" in verdict}
    texts = {document["id"]: document["text"] for _, document in judged}
    _, found = report_of(tmp_path, "--sample", "1000")
    assert {pair["id"] for pair in found["pairs"]["sample"]} == superseded.keys()
    for pair in found["pairs"]["sample"]:
        verdict, _ = superseded[pair["id"]]
        assert (pair["duplicate_of"], pair["kind"]) == (verdict["superseded_by"], verdict["kind"])
        assert pair["superseded"] and pair["similarity"] == verdict["similarity"]
        assert [side["text"] for side in pair["sides"]] == [texts[pair["duplicate_of"]], texts[pair["id"]]]
    near = sorted(verdict["similarity"] for verdict, _ in superseded.values() if verdict["kind"] == "near_duplicate")
    assert [pair["similarity"] for pair in found["pairs"]["above"]] == near[:16]
    (suspect,) = (one for one in found["shared_texts"] if one["set"])
    assert suspect["source"] == "footer" and suspect["share_of_source"] > 0.5 and suspect["sampled"] > 20
    labels = [{"seq": pair["seq"], "id": pair["id"], "wrong": True} for pair in found["pairs"]["sample"]]
    wrong = audited(tmp_path, "--labels", write_lines(tmp_path / "labels", labels))["wrong_drops"]
    assert (wrong["labelled"], wrong["unused"], wrong["share"]) == (len(labels), 0, 1)


@pytest.mark.parametrize(("changes", "options"), [
    (True, UPDATES), (True, (*UPDATES, "--keep", "newest")), (False, ("--keep", "longest", "--no-groups"))
])  # fmt: skip
def test_kept_documents_are_those_of_final(tmp_path: Path, changes: bool, options: tuple[str, ...]) -> None:
    given = write_lines(tmp_path / "feed", feed(changes=changes))
    run("dedup", given, "--index", tmp_path / "index", "--unique", tmp_path / "u", "--final", "--quiet", *options)
    found = audited(tmp_path, "--fail-if", "dropped_share<0")["documents"]
    assert found["kept"] == len(read_lines(tmp_path / "u")) < found["live"]
    assert found["kept"] + found["dropped"] == found["live"]


def test_labels_estimate_wrong_drops(folder: Path, tmp_path: Path) -> None:
    _, found = report_of(folder, "--sample", "50")
    sample = found["pairs"]["sample"]
    assert len({pair["seq"] for pair in sample}) == len(sample) >= 40
    labels = [{"seq": pair["seq"], "id": pair["id"], "wrong": pair["similarity"] < 0.85} for pair in sample] + [
        {"seq": 10**6, "id": "d1", "wrong": True},
        {"seq": sample[0]["seq"] + 1, "id": "no such", "wrong": True},
    ]
    wrong = audited(folder, "--labels", write_lines(tmp_path / "labels", labels))["wrong_drops"]
    drops = [
        v["similarity"] for v in read_lines(folder / "verdicts") if v["kind"] in ("near_duplicate", "exact_duplicate")
    ]
    assert wrong["labelled"] == len(sample) and wrong["unused"] == 2
    assert wrong["share"] == pytest.approx(sum(similarity < 0.85 for similarity in drops) / len(drops))
    assert wrong["low"] < wrong["share"] < wrong["high"]
    one = audited(folder, "--labels", write_lines(tmp_path / "one", labels[:1]))["wrong_drops"]
    assert one["share"] is None and one["low"] < 0.2 and one["high"] > 0.5
    for line in ("{}", "[", '{"seq": true, "id": "a", "wrong": true}', '{"seq": 1e99, "id": "a", "wrong": true}'):
        (tmp_path / "bad").write_text(f"{json.dumps(labels[0])}\n{line}\n")
        assert (
            "bad:2 is no label"
            in run("audit", "--index", folder / "index", "--labels", tmp_path / "bad", code=4).stderr
        )


def test_conditions_end_with_1(folder: Path) -> None:
    def failing(condition: str, code: int) -> str:
        return run("audit", "--index", folder / "index", "--fail-if", condition, code=code).stderr

    assert "dropped_share_of_source is 0.9" in failing("dropped_share_of_source>0.5", 1)
    assert "group_share_of_source" in failing("group_share_of_source >= 90%", 1)
    assert failing("dropped_share>0.99", 0) == ""
    assert "did you mean dropped_share_of_source?" in failing("dropped_share_of_sorce>0.5", 2)
    assert "give FIGURE>NUMBER" in failing("dropped_share=0.5", 2)
    assert "give labels with --labels" in failing("wrong_drop_share>0.1", 2)


def test_what_was_not_compared_is_counted_in_verdicts(folder: Path, tmp_path: Path) -> None:
    judged = fed(tmp_path, [{"id": n, "text": FOOTER + f" {n} x y z"} for n in range(60)], "--compare-with", "all",
    "--max-candidates", "2")  # fmt: skip
    counts = [verdict.get("not_compared", 0) for verdict, _ in judged]
    found = audited(tmp_path, "--verdicts", tmp_path / "verdicts")["not_compared"]
    assert found == {
        "verdicts": 60, "not_compared": sum(map(bool, counts)), "buckets_and_candidates": sum(counts)
    }  # fmt: skip
    assert sum(counts) > 0
    run("audit", "--index", folder / "index", "--verdicts", folder / "feed", code=4)


def test_texts_and_ids_are_data_only(tmp_path: Path) -> None:
    text = " ".join([HOSTILE, "{{DATA}}", "<!--", "שלום", *WORDS[:20]])
    documents = [
        {"id": f"{HOSTILE}{n}" + "x" * 500, "text": text + " a b c d e"[: 2 * n], "from": HOSTILE} for n in range(4)
    ]
    fed(tmp_path, documents, "--source-field", "from")
    page, found = report_of(tmp_path)
    assert HOSTILE not in page and "<!--" not in page and page.count("<script") == page.count("</script>") == 2
    assert [pair["id"] for pair in found["pairs"]["above"]] and found["pairs"]["above"][0]["sides"][0]["text"] == text
    assert found["sources"]["most"][0]["source"] == HOSTILE
    policy = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page


TWICE = [{"id": n, "text": f"{FOOTER[:40]} {n // 2}", "vector": [n // 2, 1.0, 2.0], "lang": "en"} for n in range(30)]


@pytest.mark.parametrize(("documents", "options"), [
    ([], ()), (TWICE[:1], ()), ([{**one, "text": FOOTER} for one in TWICE], ()), (TWICE, ("--no-groups",)),
    (TWICE, ("--match-within", "lang")), (TWICE, ("--threshold", "0.25")), (TWICE, ("--threshold", "1")),
    (TWICE, ("--measure", "containment")), (TWICE, ("--measure", "levenshtein", "--max-distance", "2")),
    (TWICE, ("--measure", "tf-idf")), (TWICE, ("--measure", "cosine", "--dimensions", "3")),
])  # fmt: skip
def test_any_index_has_a_report(tmp_path: Path, documents: list[dict[str, Any]], options: tuple[str, ...]) -> None:
    """None of these has sources or times."""
    words = (
        "dedup",
        write_lines(tmp_path / "feed", documents),
        "--index",
        tmp_path / "index",
        "--unique",
        tmp_path / "u",
    )
    run(*words, "--quiet", *options)
    _, found = report_of(tmp_path)
    assert found["sources"] is None and found["times"]["bars"] == []
    assert found["documents"]["live"] == len(documents)
    assert found["documents"]["dropped"] == len(documents) - len(read_lines(tmp_path / "u"))
    assert [pair["seq"] for pair in found["pairs"]["sample"]] or not found["documents"]["dropped"]


def test_damaged_rows_are_counted_and_not_shown(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "index", tmp_path / "index")
    settings = stored_settings(copy)
    index = Index(settings, copy, read_only=True)
    rows = index.shards[0].rows.recent
    before = read_rows(index, 10, [])
    rows[3, layout.FLAGS] |= np.uint64(0x7F << 16)  # no kind
    rows[4, layout.SEQ] = rows[5, layout.TIME] = np.uint64(1 << 62)
    (near, *_) = before.borderline.documents["row"].tolist()
    rows[near, layout.SIMILARITY] = np.float64("nan").view(np.uint64)
    after = read_rows(index, 10, [])
    index.close()
    assert (before.damaged, after.damaged) == (0, 4)
    assert after.documents == before.documents - 4


def test_a_window_counts_what_is_stored(tmp_path: Path) -> None:
    segments = "--window", "2d", "--segment-documents", "100"
    for number in range(200, 1000, 200):  # segments leave with later commits
        judged = fed(tmp_path, feed(number), *SOURCED, *segments)
    found = audited(tmp_path)["documents"]
    stored = figures("info", tmp_path / "index")["documents"]["stored"]
    latest = judged[-stored:]
    assert found["live"] == stored < len(judged)
    assert found["dropped"] == sum(verdict["kind"] != "unique" for verdict, _ in latest)


def test_an_index_is_audited_while_it_is_written(tmp_path: Path) -> None:
    documents = [Document(str(n), f"{FOOTER} {n // 3} {n // 3 * 7} {n // 3}") for n in range(900)]
    with Deduplicator(Settings(), index=tmp_path / "index") as writer:
        kinds: list[str] = []
        for n in range(0, 900, 300):
            kinds += [verdict.kind for verdict in writer.process(documents[n : n + 300])]
            writer.commit()
            found = audited(tmp_path)["documents"]
            assert (found["kept"], found["live"], found["damaged"]) == (kinds.count("unique"), len(kinds), 0)
            kinds += [verdict.kind for verdict in writer.process([Document(f"later {n}", FOOTER)])]  # for the next one


def test_sources_beyond_the_first_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [{"id": n, "text": f"{FOOTER} {n // 4}", "from": f"s{n % 300}"} for n in range(900)]
    fed(tmp_path, documents, "--source-field", "from", "--verify", "signature", "--threshold", "1")
    sources = audited(tmp_path)["sources"]
    assert (sources["number"], len(sources["most"]), sources["rest"]["sources"]) == (300, SHOWN, 300 - SHOWN)
    assert sum(one["documents"] for one in sources["most"]) + sources["rest"]["documents"] == 900
    monkeypatch.setattr("stream_lsh.audit.groups.MOST_SOURCES", 100)
    index = Index(stored_settings(tmp_path / "index"), tmp_path / "index", read_only=True)
    rows = read_rows(index, 10, [])
    groups = read_groups(index.store, rows.states, rows.superseded)
    index.close()
    assert groups is not None and groups.unnamed > 0
    assert groups.unnamed + sum(map(groups.documents, groups.sources)) == 900


def test_wilson_has_its_known_values() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81/263, 15/148, 0/20, 1/29
    for hits, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(hits, n)[1:] == pytest.approx((low, high), abs=1e-4)
    assert wilson(0, 0) == Estimate(None, 0, 1)


def test_a_stratum_without_labels_widens_the_interval() -> None:
    assert stratified([0, 0], [wilson(0, 0)] * 2) == Estimate(None, 0, 1)
    one = wilson(3, 20)
    assert stratified([50, 0], [one, wilson(0, 0)]) == pytest.approx(one)
    half = stratified([50, 50], [one, wilson(0, 0)])
    assert (
        half.share is None and half.low == pytest.approx(one.low / 2) and half.high == pytest.approx(one.high / 2 + 0.5)
    )


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance, sizes, shares = random.Random(5), [1000, 3000, 500], [0.3, 0.05, 0.6]
    true = sum(size * share for size, share in zip(sizes, shares, strict=True)) / sum(sizes)
    held = 0
    for _ in range(1000):
        parts = [wilson(sum(chance.random() < share for _ in range(30)), 30) for share in shares]
        found = stratified(sizes, parts)
        held += found.low <= true <= found.high
    assert 930 <= held <= 990
