"""`stream-lsh kafka worker`: the pipeline on Kafka."""

from __future__ import annotations

from typing import Any

import click

from stream_lsh.cli.extra import PACKAGES, REGISTRY_PACKAGES, require, require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.kafka.command import log_level_option
from stream_lsh.cli.options import COMMON, KAFKA_SETTINGS, OF_TOPICS, RUNNING, load_settings, option, settings_options
from stream_lsh.embedded.signals import ignore, interruption, postponed
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import GROUP, ROLES, KafkaSettings

PROCESSES = ("groups", "roles", "one")

EXAMPLES = """
stream-lsh kafka worker
stream-lsh kafka worker --config settings.toml --http-port 8080
stream-lsh kafka worker --roles match --data-folder /var/lib/stream-lsh
stream-lsh kafka worker --roles sign --bootstrap-servers kafka-1:9092,kafka-2:9092
"""


def roles_of(text: str | None, settings: KafkaSettings) -> tuple[str, ...]:
    """Roles from a comma list, in the order of the pipeline; without one all that there are. Raises UsageError."""
    there = settings.roles
    if text is None:
        return there
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    for name in wanted:
        if name not in there:
            more = "; group is one with groups = true" if name == GROUP else ""
            raise UsageError(f"--roles {text}: there is no role {name!r}; there are {', '.join(there)}{more}")
    if not wanted:
        raise UsageError(f"--roles is empty; there are {', '.join(there)}")
    return tuple(role for role in there if role in wanted)


class WorkerCommand(Command):
    """A worker that is asked to stop has stopped cleanly, also while it is still being imported."""

    def invoke(self, ctx: click.Context) -> None:
        try:
            signals: tuple[int, ...] = super().invoke(ctx)
        except KeyboardInterrupt:  # all signals that come later are in `signals`
            ignore()
            complain("stopped before anything had begun")
            return
        if len(signals) > 1:
            raise interruption(signals[1])


@click.command(
    cls=WorkerCommand,
    examples=EXAMPLES,
    help="""Run the pipeline on Kafka until SIGTERM or Ctrl-C: documents in, verdicts, pairs, unique documents and dead
letters out. `stream-lsh kafka topics create` makes the topics.

Start as many workers as you like, on any number of machines, with the same settings. They share the work, and take over
from each other. sign and forward scale with the partitions of the documents topic, match with the shards. One worker at
a time does sequence, judge and group, and another one takes over if it stops. Each worker needs its own data_folder.

A worker has one process for sign, one for match and one for the other roles. A supervisor restarts a killed process. A
signal lets it finish what is in flight; a second signal ends it at once, without loss. The exit code is 0 after a clean
stop, and 6 if Kafka could not be used for give_up_seconds. A role that cannot continue, with a full disk for example,
stops alone.

With http_port each process answers /health and /metrics, the first at this port and the others at the next ones.
`stream-lsh health` asks them all. Passwords (sasl_password, ssl_password) are settings of the file, or the
variables STREAM_LSH_SASL_PASSWORD and STREAM_LSH_SSL_PASSWORD.""",
    params=[
        option(
            RUNNING, "--roles ROLE,...",
            f"roles of this worker: {', '.join(ROLES)}, with --groups also {GROUP}  [all]",
        ),
        option(
            RUNNING, "--processes",
            "groups: sign, match and the rest; roles: one for each role; one: this process alone",
            click.Choice(PROCESSES), default=PROCESSES[0], show_default=True,
        ),
        log_level_option("info"),
        *settings_options([name for name in KAFKA_SETTINGS + COMMON if name not in OF_TOPICS], KafkaSettings),
    ],
)  # fmt: skip
@click.pass_context
def worker(context: click.Context, /, roles: str | None, processes: Any, log_level: str, **_: Any) -> tuple[int, ...]:
    settings = load_settings(context, KafkaSettings)
    wanted = roles_of(roles, settings)
    with postponed():  # a library may swallow what is raised while it is imported
        require_kafka(*PACKAGES)
        if any(topic.document_format == "registry" for topic in settings.by_topic.values()):
            require("document_format = registry", "registry", REGISTRY_PACKAGES)
        if settings.output_format == "avro":
            require("output_format = avro", "registry", REGISTRY_PACKAGES)
        from stream_lsh.kafka.run.supervisor import plan, work  # here, because it takes the Kafka client with it

        if GROUP in wanted and settings.alerts is not None:
            from stream_lsh.kafka.groups.stage import rules_of

            rules_of(settings)  # what is wrong with them is said before anything begins
    jobs = plan(wanted, processes, settings.http_port, log_level)
    if jobs[-1].port is not None and jobs[-1].port > 65535:
        raise UsageError(
            f"http_port = {settings.http_port}: the {len(jobs)} processes need a port each; give a lower one"
        )
    return work(jobs, settings)
