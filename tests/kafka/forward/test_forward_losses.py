"""Forward, where documents, verdicts or positions are gone: it says so, and goes on without only if that is allowed."""

from functools import partial

import pytest
from support.kafka.brokers import Make
from support.kafka.forward_play import NOW, OPTIONS, Written, check, until_forwarded, verdict, write_plain
from support.kafka.stages import commit, delete_before, ended, running, send

from stream_lsh.errors import StoreError
from stream_lsh.kafka.forward.stage import ForwardStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings


@pytest.fixture
def make(make: Make) -> Make:
    return partial(make, **OPTIONS)


def plain_documents(number: int) -> list[Written]:
    return [Written(0, i, b"k", b"%d" % i, [], NOW, "unique") for i in range(number)]


async def write_verdicts(settings: KafkaSettings, documents: list[Written]) -> None:
    """Without markers of transactions between them: offsets are counted here."""
    await send(settings, Topics.of(settings).verdicts, [verdict(settings, document) for document in documents])


async def scene(make: Make, lost: str) -> tuple[KafkaSettings, list[Written], str]:
    """Settings, documents, and the topic that loses some of its records."""
    settings = await make(partitions=1)
    return settings, plain_documents(12), getattr(Topics.of(settings), lost)


@pytest.mark.parametrize("lost", ["documents", "verdicts"])
async def test_what_was_deleted_too_early_is_an_error_unless_the_loss_is_accepted(
    make: Make, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings, documents, place = await scene(make, lost)
    await write_plain(settings, documents)
    await write_verdicts(settings, documents[:3])
    async with running(ForwardStage, settings):
        await until_forwarded(settings, documents[:3])
    await write_verdicts(settings, documents[3:])
    await delete_before(settings, place, 7)
    with pytest.raises(StoreError, match=rf"partition 0: 4 {lost} from offset 3 on were deleted.*--accept-loss"):
        await ended(ForwardStage, settings)
    with caplog.at_level("WARNING", "stream_lsh.kafka"):
        async with running(ForwardStage, settings.model_copy(update={"accept_loss": True})):
            await until_forwarded(settings, documents)
    assert "4 documents of" in caplog.text
    await check(settings, documents[:3] + documents[7:], 1)


@pytest.mark.parametrize("lost", ["documents", "verdicts"])
async def test_what_was_deleted_before_the_first_start(make: Make, lost: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every time, as long as the loss is not accepted: where it begins was committed by the first run."""
    settings, documents, place = await scene(make, lost)
    await write_plain(settings, documents)
    await write_verdicts(settings, documents[:10])
    await delete_before(settings, place, 7)
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"partition 0: 7 {lost}.* were deleted.*--accept-loss"):
            await ended(ForwardStage, settings)
    with caplog.at_level("WARNING", "stream_lsh.kafka"):
        async with running(ForwardStage, settings.model_copy(update={"accept_loss": True})):
            await until_forwarded(settings, documents[:10])
    assert "7 documents of" in caplog.text
    async with running(ForwardStage, settings):
        await write_verdicts(settings, documents[10:])
        await until_forwarded(settings, documents)
    await check(settings, documents[7:], 1)


async def test_documents_older_than_the_pipeline_are_no_loss(make: Make) -> None:
    settings = await make(partitions=1)
    documents = plain_documents(5)
    await write_plain(settings, documents)
    await delete_before(settings, Topics.of(settings).documents, 3)
    await write_verdicts(settings, documents[3:])
    async with running(ForwardStage, settings):
        await until_forwarded(settings, documents)
    await check(settings, documents[3:], 1)


async def test_a_topic_that_was_made_anew(make: Make) -> None:
    settings = await make(partitions=1)
    topics = Topics.of(settings)
    await commit(settings, "forward", topics.documents, 5)
    await commit(settings, "forward", topics.verdicts, 0)
    with pytest.raises(StoreError, match=r"ends at offset 0, but has been forwarded up to 5.*reindex"):
        await ended(ForwardStage, settings)
