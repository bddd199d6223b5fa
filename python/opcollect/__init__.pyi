from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

Path = str | PathLike[str]
Model = Path | Mapping[str, Any]
Config = Path | Mapping[str, Any]
Progress = Callable[[dict[str, Any]], object]
Columns = dict[str, list[Any]]

class Error(Exception): ...

class Report(dict[str, Any]):
    def __str__(self) -> str: ...

class Collection:
    report: dict[str, Any]
    @property
    def attempts(self) -> int: ...
    @property
    def known_before(self) -> int: ...
    @property
    def outcomes(self) -> dict[str, int]: ...
    @property
    def losses(self) -> list[dict[str, Any]]: ...
    @property
    def seconds(self) -> float: ...
    @property
    def store(self) -> Store: ...
    @property
    def records(self) -> Columns: ...
    def __len__(self) -> int: ...

class Store:
    def __init__(self, path: Path = "opcollect-data") -> None: ...
    @property
    def path(self) -> str: ...
    def records(self, columns: str | Iterable[str] | None = None, where: str | None = None, *, choose: str = "all") -> Columns: ...
    def query(self, sql: str, *, choose: str = "all", seconds: float = 60.0, memory_mib: int = 4096) -> Columns: ...
    def best(
        self,
        *,
        operator: str | None = None,
        task: str | None = None,
        model: str | None = None,
        threads: int | None = None,
        host: str | None = None,
        all_versions: bool = False,
    ) -> Report: ...
    def stats(self, *, choose: str = "middle") -> dict[str, Any]: ...
    def export(self, path: Path, format: str | None = None, *, choose: str = "all") -> dict[str, Any]: ...
    def verify(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

def collect(
    models: Model | Iterable[Model] | None = None,
    *,
    source: str = "local",
    config: Config | None = None,
    store: Path = "opcollect-data",
    again: bool = False,
    retry_faults: int = 2,
    shard: str | None = None,
    compare: bool = False,
    wait: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Collection: ...
def run_model(
    model: Model | None = None,
    *,
    source: str = "local",
    config: Config | None = None,
    threads: int | None = None,
    inputs: Path | Mapping[str, Path] | None = None,
    output: Path | None = None,
    check: bool = True,
    plan: Path | None = None,
    parallel: str | None = None,
    store: Path | None = None,
    wait: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Report: ...
def profile(
    model: Model | None = None,
    *,
    source: str = "local",
    config: Config | None = None,
    threads: int | None = None,
    inputs: Path | Mapping[str, Path] | None = None,
    check: bool = True,
    schedule: str | None = None,
    sample: int | None = None,
    seconds: float | None = None,
    counters: str | Iterable[str] = (),
    group_by: str = "input-shape",
    levels: int = 0,
    annotate: str | None = None,
    out: Path | None = None,
    csv: Path | None = None,
    perfetto: Path | None = None,
    chrome_trace: Path | None = None,
    html: Path | None = None,
    store: Path | None = None,
    wait: int = 0,
    row_limit: int = 100,
    progress: Progress | None = None,
    **settings: Any,
) -> Report: ...
