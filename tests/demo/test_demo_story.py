"""The stories of the demo: complete, varied, the same for the same seed."""

import re
from random import Random

import pytest

from stream_lsh.demo import desks
from stream_lsh.demo.story import Desk, Topic, write

TOPICS = [
    pytest.param(desk, topic, id=f"{desk.name}-{number}")
    for desk in (*desks.ENGLISH, *desks.OTHERS, desks.NOTICES)
    for number, topic in enumerate(desk.topics)
]


@pytest.mark.parametrize(("desk", "topic"), TOPICS)
def test_nothing_of_the_templates_shows(desk: Desk, topic: Topic) -> None:
    for seed in range(20):
        story = write(Random(seed), desk, topic)
        text = "\n".join([story.title(), story.other_title(), *story.body(len(story.extras))])
        assert not re.search(r"[{}|\[\]]", text)
        assert story.title() != story.other_title()
        assert not re.search(r"(^|[.] )[a-z]", text, re.MULTILINE)
