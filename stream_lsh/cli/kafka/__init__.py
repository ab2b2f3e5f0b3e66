"""`stream-lsh kafka`: everything that works with a pipeline on Kafka."""

from __future__ import annotations

from stream_lsh.cli.group import LazyGroup

COMMANDS = {
    "worker": "Run the pipeline, or some of its roles, until it is stopped.",
    "topics": "Make the topics of the pipeline, or show them.",
    "produce": "Send the documents of files to the documents topic.",
    "tail": "Print verdicts, pairs, unique documents or dead letters as they come.",
    "groups": "Show which documents spread: groups of copies, and how many sources have them.",
    "delete": "Take documents out of the pipeline.",
    "status": "Show how the pipeline does, what is wrong first.",
    "health": "Say whether the worker on this machine is alive.",
    "drain": "Take nothing new, finish what was read, and say when that is done.",
    "reindex": "Rebuild with other settings, from the documents topic into a new prefix.",
    "replay": "Send rejected documents again, once the cause is gone.",
    "skip": "Have a record passed over that its reader cannot read.",
    "broker": "Run an Apache Kafka on this machine, for trying out.",
}
EXAMPLES = """\
stream-lsh kafka broker
stream-lsh kafka topics create
stream-lsh kafka worker
stream-lsh kafka produce feed.jsonl
stream-lsh kafka tail pairs
"""

kafka = LazyGroup(
    name="kafka",
    commands_help=COMMANDS,
    package="stream_lsh.cli.kafka",
    examples=EXAMPLES,
    help="Run and watch the pipeline on Kafka: documents in a topic, verdicts and pairs in others.",
)
