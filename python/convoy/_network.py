"""What classifiers and detectors share: opening weights, contexts, closing."""

from __future__ import annotations

import os
import threading
from ctypes import byref, c_char_p, c_void_p, sizeof
from typing import Any, Callable, List, Optional, Type, TypeVar, Union

from ._images import PathLike
from ._library import ClassifierOptions, ConvoyError, Status, UsageError, checked, library as _c

Self = TypeVar("Self", bound="Network")


def encoded(text: Optional[Union[str, "os.PathLike[str]"]]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def path_list(paths: List[PathLike]) -> Any:
    return (c_char_p * max(1, len(paths)))(*[os.fsencode(path) for path in paths])


class Network:
    """A network with its weights. Its calls wait for one another; for work in several threads each takes a context()."""

    _kind = ""  # "classifier" or "detector": the names of its functions

    def __init__(
        self,
        weights: Union[PathLike, bytes],
        *,
        arch: Optional[str] = None,
        num_classes: int = 0,
        padding: Optional[str] = None,
        device: Optional[str] = None,
        precision: Optional[str] = None,
        threads: int = 0,
        batch_size: int = 0,
        image_size: int = 0,
        resize: int = 0,
        workers: int = -1,
        backbone_strides: Optional[str] = None,
        class_names: Optional[PathLike] = None,
        data_backend: Optional[str] = None,
        features: bool = False,
        feature_layer: Optional[str] = None,
        interpolation: Optional[str] = None,
    ) -> None:
        """`weights`: a file, or its bytes. The options are those of the command line; 0 and None: chosen, or from the file."""
        self._locks()
        in_memory = isinstance(weights, (bytes, bytearray, memoryview))
        data = bytes(weights) if in_memory else None  # type: ignore[arg-type]
        options = ClassifierOptions(
            size=sizeof(ClassifierOptions),
            weights=b"weights" if in_memory else encoded(weights),  # type: ignore[arg-type]
            arch=encoded(arch),
            num_classes=num_classes,
            padding=encoded(padding),
            device=encoded(device),
            precision=encoded(precision),
            threads=threads,
            batch_size=batch_size,
            image_size=image_size,
            resize=resize,
            workers=workers,
            backbone_strides=encoded(backbone_strides),
            class_names=encoded(class_names),
            weights_data=data,
            weights_size=len(data) if data is not None else 0,
            data_backend=encoded(data_backend),
            features=features,
            feature_layer=encoded(feature_layer),
            interpolation=encoded(interpolation),
        )
        handle = c_void_p()
        checked(getattr(_c, f"cvy_{self._kind}_open")(byref(options), byref(handle)))
        self._handle = handle.value

    def _locks(self) -> None:
        """_lock is held while the network computes, _guard while the handle is looked at by whoever does not hold _lock:
        close() waits for both. Who needs both takes _lock first."""
        self._lock = threading.Lock()
        self._guard = threading.Lock()
        self._handle: Optional[int] = None

    @property
    def _open_handle(self) -> int:
        if self._handle is None:
            raise UsageError(f"the {self._kind} is closed")
        return self._handle

    def context(self: Self, threads: int = 0) -> Self:
        """Another one on the same weights, for another thread: it costs the memory of its activations. `threads` compute
        together, as many as here for 0."""
        other: Self = type(self).__new__(type(self))
        other._locks()
        handle = c_void_p()
        with self._lock:
            checked(getattr(_c, f"cvy_{self._kind}_open_context")(self._open_handle, threads, byref(handle)))
        other._handle = handle.value
        return other

    def stop(self) -> None:
        """Ends the call that another thread has begun with it, after its current batch: that call raises Stopped."""
        self._ask("stop")

    def _ask(self, what: str, *arguments: Any) -> Any:
        """A function of the handle that may be called while another thread computes."""
        with self._guard:
            return getattr(_c, f"cvy_{self._kind}_{what}")(self._open_handle, *arguments)

    def _answer_files(
        self, call: Callable[[Any], int], handler_type: Any, answer_of: Callable[[Any], Any]
    ) -> List[Any]:
        """What `call`, given a handler, hands to it. The status of the first bad file is no failure of the call; an exception
        of `answer_of` ends it and is raised."""
        answers: List[Any] = []
        raised: List[BaseException] = []

        def handler(_context: Any, pointer: Any) -> None:
            if raised:
                return
            try:
                answers.append(answer_of(pointer.contents))
            except BaseException as exception:  # ctypes would print it and go on
                raised.append(exception)
                self.stop()

        with self._lock:
            self._open_handle
            status = call(handler_type(handler))
            text = _c.cvy_error().decode(errors="replace") if status != Status.OK else ""
        if raised:
            raise raised[0]
        bad: Optional[ConvoyError] = next((answer.error for answer in answers if answer.error), None)
        if bad is None or (bad.status, str(bad)) != (status, text):
            checked(status)
        return answers

    def close(self) -> None:
        """Gives its memory back. It cannot be used any more; closing twice is allowed."""
        with self._lock, self._guard:
            handle, self._handle = self._handle, None
            if handle is not None:
                getattr(_c, f"cvy_{self._kind}_close")(handle)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Any, traceback: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    @property
    def arch(self) -> str:
        """The name of the architecture: "resnet50"."""
        return self._ask("arch").decode()

    @property
    def num_classes(self) -> int:
        return self._ask("classes")

    @property
    def classes(self) -> List[Optional[str]]:
        """The names of the classes; None for one without a name."""
        return [self._class_name(index) for index in range(self.num_classes)]

    def _class_name(self, index: int) -> Optional[str]:
        name = self._ask("class_name", index)  # ctypes copies the text before the guard is given back
        return None if name is None else name.decode(errors="replace")
