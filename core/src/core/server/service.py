"""The state that all routes share: which phase the server is in, the loaded engine, the open requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from starlette.requests import Request

from core.errors import CoreError, EngineDead, InvalidRequest
from core.managers.messages import EngineStats
from core.server.errors import ModelNotFound, NotReady
from core.server.front_end import FrontEnd
from core.server.metrics import Metrics
from core.server.request_record import RequestRecord
from core.server.schema.request import UnknownFields
from core.server.schema.sampling import SamplingDefaults

MAX_BODY_BYTES = 32 << 20


class ChatRenderer(Protocol):
    """Turns a conversation into a prompt. `core.managers.chat_template.ChatTemplate` is one."""

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """The prompt's text. Raises `InvalidRequest` if there is no template or it refuses the messages."""
        ...


class Phase(Enum):
    """LOADING, then READY, then DRAINING if asked to stop; DEAD from any of them if the engine stops."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Serving:
    """A loaded engine and what belongs to its model.

    `info` is shown by `/server_info`, `table`, the selection explained, in the start-up log.
    """

    engine: FrontEnd
    chat: ChatRenderer
    defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    info: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""


class Service:
    """One server. Used by one event loop only.

    Args:
        model: as given on the command line; clients may ask for it by this name too.
        served_name: the name under which it is listed.
        max_body_bytes: longest request body that is read.
    """

    def __init__(self, model: str, served_name: str | None = None, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.model = model
        self.served_name = served_name or model
        self.created = int(time.time())
        self.max_body_bytes = max_body_bytes
        self.metrics = Metrics(self._stats)
        self.unknown_fields = UnknownFields()
        self.phase = Phase.LOADING
        self.serving: Serving | None = None
        self._open: dict[str, RequestRecord] = {}
        self._death = ""

    def _stats(self) -> EngineStats | None:
        return None if self.serving is None else self.serving.engine.stats

    def loaded(self, serving: Serving) -> None:
        """Start to answer."""
        self.serving = serving
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    def drain(self) -> None:
        """Refuse new requests; the open ones go on."""
        if self.phase is not Phase.DEAD:
            self.phase = Phase.DRAINING

    def died(self, message: str) -> None:
        """The engine stopped: open requests end with an error, new ones are refused."""
        self.phase = Phase.DEAD
        self._death = f"The engine stopped: {message}"
        self.interrupt_all(EngineDead(self._death))

    def require_serving(self) -> Serving:
        """The loaded engine. Raises `NotReady` while loading or draining, `EngineDead` after its end."""
        if self.phase is Phase.READY and self.serving is not None:
            return self.serving
        if self.phase is Phase.DEAD:
            raise EngineDead(self._death)
        reason = "about to stop" if self.phase is Phase.DRAINING else "still loading the model"
        raise NotReady(f"The server is {reason}; try again later")

    def check_model(self, name: str | None) -> None:
        """Raise `ModelNotFound` unless `name` is absent or the served model's."""
        if name is not None and name not in (self.served_name, self.model):
            raise ModelNotFound(
                f"The model {name[:256]!r} is not served here; this server has {self.served_name!r}", param="model"
            )

    def open(self, route: str, request_id: str) -> RequestRecord:
        """Start the record of a request. It leaves the open ones by itself when it ends."""
        record = RequestRecord(request_id, route, self.metrics, self._closed)
        self._open[request_id] = record
        return record

    def rename(self, record: RequestRecord, request_id: str) -> None:
        """Give an open request the id that its client chose. Raises `InvalidRequest` if another one has it."""
        if request_id in self._open:
            raise InvalidRequest(f"A request of the id {request_id!r} is in progress", param="rid")
        del self._open[record.request_id]
        record.request_id = request_id
        self._open[request_id] = record

    def _closed(self, request_id: str) -> None:
        del self._open[request_id]

    @property
    def num_open(self) -> int:
        """Requests for generation that have not ended."""
        return len(self._open)

    def abort(self, request_id: str) -> bool:
        """Abort an open request at its client's wish; False if there is none of this id."""
        record = self._open.get(request_id)
        if record is not None:
            record.abort()
        return record is not None

    def abort_all(self) -> int:
        """Abort every open request; returns how many there were."""
        records = list(self._open.values())
        for record in records:
            record.abort()
        return len(records)

    def interrupt_all(self, failure: CoreError) -> None:
        """End every open request with an error."""
        for record in list(self._open.values()):
            record.interrupt(failure)


def service_of(request: Request) -> Service:
    """The service behind the application that got `request`."""
    service: Service = request.app.state.service
    return service


def new_id(prefix: str) -> str:
    """A request id that nobody can guess."""
    return f"{prefix}-{uuid.uuid4().hex}"
