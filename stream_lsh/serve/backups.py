"""Backups over HTTP."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response

from stream_lsh.errors import UsageError
from stream_lsh.serve import openapi
from stream_lsh.serve.bodies import body
from stream_lsh.serve.documents import json_response, media_type
from stream_lsh.serve.interface import Interface
from stream_lsh.serve.openapi import JSON
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.schemas import Backup, BackupRequest
from stream_lsh.serve.security import WRITE, Served

MOST_BYTES = 8192
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
router = APIRouter(prefix="/v1", tags=["backups"])


@router.post(
    "/backups", dependencies=[WRITE], openapi_extra=openapi.body_of(BackupRequest),
    responses=openapi.answer(Backup, "the backup is complete", 409, 413, 415, 422, 429, 507),
)  # fmt: skip
async def make_backup(request: Request, service: Served) -> Response:
    """Make a backup of the index, as of one commit, in a folder of `--backup-folder`. Documents are accepted
    meanwhile. The default name is the time in UTC."""
    media_type(request, JSON)
    with service.intake.taking() as holding:
        asked = _asked(await body(request, MOST_BYTES, holding))
    local = bool(request.scope.get("state", {}).get("local"))
    destination = _destination(service, asked, local)
    try:
        made = await service.backup(destination)
    except UsageError as error:
        code = "backup_exists" if destination.exists() else None
        raise Problem(409, str(error), code=code, field="name") from None
    return json_response(
        {"name": made.folder.name, "folder": str(made.folder), "next_seq": made.next_seq, "bytes": made.size}
    )


def _asked(data: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(data)
    except (ValueError, RecursionError):
        asked = None
    if isinstance(asked, dict):
        asked = {name: value for name, value in asked.items() if value is not None}
    if not isinstance(asked, dict) or not all(isinstance(value, str) for value in asked.values()):
        raise Problem(422, 'the body has to be a JSON object such as {"name": "monday"}', field="body")
    return asked


def _destination(service: Interface, asked: dict[str, Any], local: bool) -> Path:
    """The folder of a backup. Only the command line names one, through the socket in the index folder."""
    if local and "folder" in asked:
        return Path(asked["folder"])
    if service.backups is None:
        raise Problem(409, "the service has no folder for backups (--backup-folder)", field="backup_folder")
    for field in asked:
        if field != "name":
            raise Problem(422, f"{field[:60]}: there is no such field; a backup has a name", field=field[:60])
    name = asked.get("name", time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime()))
    if _NAME.fullmatch(name) is None:
        raise Problem(422, "name: give letters, digits, ., _ and -, at most 100", field="name")
    folder: Path = service.backups / name
    return folder
