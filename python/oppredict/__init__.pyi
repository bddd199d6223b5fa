from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeVar, overload

Frame = TypeVar("Frame")
Path = str | PathLike[str]
Question = str | Mapping[str, Any]

class Error(ValueError): ...

class Predictor:
    def __init__(self, path: Path, mapping: Path | None = None) -> None: ...
    @property
    def operators(self) -> list[str]: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def this_host(self) -> str | None: ...
    @overload
    def predict(
        self, questions: Question, *, device: str | None = None, threads: float | None = None, extrapolate: bool = False
    ) -> dict[str, Any]: ...
    @overload
    def predict(
        self,
        questions: list[Question],
        *,
        device: str | None = None,
        threads: float | None = None,
        extrapolate: bool = False,
    ) -> list[dict[str, Any]]: ...
    @overload
    def predict(
        self, questions: Frame, *, device: str | None = None, threads: float | None = None, extrapolate: bool = False
    ) -> Frame: ...
    def model(
        self,
        name: Path,
        *,
        source: str = "local",
        batch: int = 1,
        sequence: int = 128,
        device: str | None = None,
        threads: float | None = None,
    ) -> dict[str, Any]: ...

def load(path: Path | None = None, mapping: Path | None = None) -> Predictor: ...
