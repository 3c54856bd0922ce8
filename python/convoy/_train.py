"""Training, as an iterator of epochs."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from ctypes import byref, c_void_p, sizeof
from typing import Any, Dict, Iterator, NamedTuple, Optional, Union

from ._images import PathLike
from ._library import EPOCH_HANDLER, PLAN_HANDLER, ConvoyError, Measures, Status, TrainEvents, TrainResult
from ._library import checked, error, library as _c

_FROM_FLAG = 5


class Epoch(NamedTuple):
    """An epoch that has ended. `val`: of the validation, empty where none was made."""

    epoch: int
    epochs: int
    train_loss: float
    learning_rate: float
    images_per_second: float
    seconds: float
    best: bool
    val: Dict[str, float]
    val_ema: Dict[str, float]


class Result(NamedTuple):
    """What a run came to. `weights`: the file to classify with, "" without one."""

    run_directory: str
    weights: str
    classes: int
    detector: bool
    best_epoch: int
    best_score: float
    epochs_done: int
    steps_done: int
    bad_images: int
    seconds: float
    val: Dict[str, float]
    stopped: bool


def _measures(measures: Measures) -> Dict[str, float]:
    return {one.name.decode(): one.value for one in measures.list[: measures.count]}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class _Run:
    """What the thread of a run holds; the Training that owns it may be forgotten before the run ends."""

    def __init__(self, data: Optional[PathLike], options: Dict[str, Any]) -> None:
        self.plan = ""
        self.result: Optional[Result] = None
        self.failure: Optional[ConvoyError] = None
        self.events: "queue.SimpleQueue[Optional[Epoch]]" = queue.SimpleQueue()
        self._guard = threading.Lock()  # of the handle, which the thread frees
        self._handle: Optional[c_void_p] = self._new(data, options)
        self.thread = threading.Thread(target=self._train, name="convoy.train", daemon=True)
        try:
            self.thread.start()
        except BaseException:
            self._free()
            raise

    def _new(self, data: Optional[PathLike], values: Dict[str, Any]) -> c_void_p:
        """The run, not opened yet. The library copies options and events; the handlers are called as long as it is there."""
        options, handle = _c.cvy_train_options_new(), c_void_p()
        if not options:
            raise error(Status.NO_MEMORY, "no memory for the options of a training")
        try:
            for name, value in values.items():
                if value is not None:
                    text = os.fsencode(_text(value))
                    checked(_c.cvy_train_options_set(options, name.replace("_", "-").encode(), text, _FROM_FLAG))
            if data is not None:
                checked(_c.cvy_train_options_set_data(options, os.fsencode(data)))
            self._handlers = PLAN_HANDLER(self._take_plan), EPOCH_HANDLER(self._take_epoch)
            events = TrainEvents(size=sizeof(TrainEvents), plan=self._handlers[0], epoch=self._handlers[1])
            checked(_c.cvy_training_new(options, byref(events), byref(handle)))
        finally:
            _c.cvy_train_options_free(options)
        return handle

    def _free(self) -> None:
        with self._guard:
            handle, self._handle = self._handle, None
        _c.cvy_training_free(handle)

    def _take_plan(self, _context: Any, text: bytes) -> None:
        self.plan = text.decode(errors="replace")

    def _take_epoch(self, _context: Any, pointer: Any) -> None:
        one = pointer.contents
        self.events.put(
            Epoch(
                one.epoch,
                one.epochs,
                one.train_loss,
                one.learning_rate,
                one.images_per_second,
                one.seconds,
                one.best,
                _measures(one.val) if one.validated else {},
                _measures(one.val_ema) if one.validated and one.averaged else {},
            )
        )

    def _train(self) -> None:
        try:
            result = TrainResult()
            status = _c.cvy_training_run(self._handle, byref(result))
            if status not in (Status.OK, Status.STOPPED):
                self.failure = error(status, _c.cvy_error().decode(errors="replace"))
            else:
                self.result = Result(
                    os.fsdecode(result.run_directory),
                    os.fsdecode(result.weights),
                    result.classes,
                    result.detector,
                    result.best_epoch,
                    result.best_score,
                    result.epochs_done,
                    result.steps_done,
                    result.bad_images,
                    result.seconds,
                    _measures(result.val),
                    status == Status.STOPPED,
                )
        finally:
            self._free()
            self.events.put(None)

    def stop(self) -> None:
        with self._guard:
            if self._handle is not None:
                _c.cvy_training_stop(self._handle)

    def close(self) -> None:
        while self.thread.is_alive():
            self.stop()
            self.thread.join(0.2)


class Training:
    """A run. Iterating waits for its epochs; leaving the `with` block, close(), the end of the program and forgetting the
    iterator (a loop that an exception leaves) stop it with a checkpoint saved.

    The library trains in a thread of its own. `plan` is the text of the plan, `result` what it came to, once it has ended."""

    def __init__(self, data: Optional[PathLike], options: Dict[str, Any]) -> None:
        self._run = _Run(data, options)
        self._finalizer = weakref.finalize(self, self._run.close)

    @property
    def plan(self) -> str:
        return self._run.plan

    @property
    def result(self) -> Optional[Result]:
        return self._run.result

    def __iter__(self) -> Iterator[Epoch]:
        return self

    def __next__(self) -> Epoch:
        try:
            epoch = self._run.events.get()
        except KeyboardInterrupt:
            self.close()
            raise
        if epoch is not None:
            return epoch
        self._run.events.put(None)  # for whoever asks again
        self._run.thread.join()
        if self._run.failure is not None:
            raise self._run.failure
        raise StopIteration

    def stop(self) -> None:
        """Asks it to finish its step and save a checkpoint; the iterator ends then, and result.stopped is true."""
        self._run.stop()

    def close(self) -> None:
        """Stops it, if it runs, and waits for its end."""
        self._run.close()

    def run(self) -> Result:
        """Waits for its end."""
        for _ in self:
            pass
        assert self.result is not None
        return self.result

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.close()


def train(data: Union[PathLike, None] = None, **options: Any) -> Training:
    """Begins a training on a folder and returns the iterator of its epochs. `options` are those of `convoy train`, with
    underscores for hyphens: epochs=10, batch_size=64, arch="resnet50", workspace="runs/one".
    What is not given is chosen for the data. Several runs at once share the cores by threads=."""
    return Training(data, options)
