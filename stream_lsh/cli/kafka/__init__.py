"""`stream-lsh kafka`: everything that works with a pipeline on Kafka."""

from __future__ import annotations

from stream_lsh.cli.group import LazyGroup

COMMANDS = {
    "worker": "Run the pipeline, or some of its roles, until it is stopped.",
    "topics": "Make the topics of the pipeline, or show them.",
    "produce": "Send the documents of files to the documents topic.",
    "tail": "Print verdicts, pairs, unique documents or dead letters as they come.",
    "query": "Show documents of the pipeline that are similar to a text.",
    "groups": "Show the groups of a pipeline: which documents spread.",
    "delete": "Delete documents from the pipeline.",
    "status": "Show the state of the pipeline, what is wrong first.",
    "drain": "Finish what was read, and read nothing new.",
    "reindex": "Rebuild index and outputs under a new prefix.",
    "replay": "Send rejected documents again.",
    "skip": "Skip a record that stops its reader.",
    "set-stream-time": "Set stream time back after wrong event times.",
    "broker": "Run an Apache Kafka on this machine for trying out.",
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
