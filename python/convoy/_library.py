"""The C library by ctypes: its structs, functions and errors. What programs use is in convoy/__init__.py."""

from __future__ import annotations

import ctypes
import enum
import logging
import os
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t
from ctypes import c_uint8, c_void_p

LIBRARY_NAME = "libconvoy.so.0"
VERSION = "0.1"  # of the structs below: the library's first two numbers


class Status(enum.IntEnum):
    """What became of a call: the exit codes of the program."""

    OK = 0
    FAILED = 1
    USAGE = 2
    BAD_DATA = 65
    NO_INPUT = 66
    UNAVAILABLE = 69
    NO_MEMORY = 71
    CANNOT_CREATE = 73
    CANNOT_WRITE = 74
    STOPPED = 75


class ConvoyError(Exception):
    """A call that failed: the sentence is its text, `status` its kind."""

    status = Status.FAILED


class UsageError(ConvoyError, ValueError):
    status = Status.USAGE


class BadDataError(ConvoyError, ValueError):
    status = Status.BAD_DATA


class NoInputError(ConvoyError, FileNotFoundError):
    status = Status.NO_INPUT


class UnavailableError(ConvoyError):
    status = Status.UNAVAILABLE


class OutOfMemoryError(ConvoyError, MemoryError):
    status = Status.NO_MEMORY


class OutputError(ConvoyError, OSError):
    """A file cannot be created or written."""

    status = Status.CANNOT_WRITE


class Stopped(ConvoyError):
    """The call was asked to end, by stop() or a signal."""

    status = Status.STOPPED


_ERRORS = {
    Status.USAGE: UsageError,
    Status.BAD_DATA: BadDataError,
    Status.NO_INPUT: NoInputError,
    Status.UNAVAILABLE: UnavailableError,
    Status.NO_MEMORY: OutOfMemoryError,
    Status.CANNOT_CREATE: OutputError,
    Status.CANNOT_WRITE: OutputError,
    Status.STOPPED: Stopped,
}


def error(status: int, text: str) -> ConvoyError:
    """The exception of a status."""
    failure = _ERRORS.get(status, ConvoyError)(text)
    failure.status = Status(status)
    return failure


# ---- structs, field for field those of include/convoy (tests/python compares their sizes) ----
class ClassifierOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("weights", c_char_p),
        ("arch", c_char_p),
        ("num_classes", c_int),
        ("padding", c_char_p),
        ("device", c_char_p),
        ("precision", c_char_p),
        ("threads", c_int),
        ("batch_size", c_int),
        ("image_size", c_int),
        ("resize", c_int),
        ("workers", c_int),
        ("backbone_strides", c_char_p),
        ("class_names", c_char_p),
        ("weights_data", c_char_p),
        ("weights_size", c_size_t),
        ("data_backend", c_char_p),
        ("features", c_bool),
        ("feature_layer", c_char_p),
        ("interpolation", c_char_p),
    ]


class Pixels(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("data", c_void_p),
        ("format", c_int),
        ("width", c_int),
        ("height", c_int),
        ("stride", c_size_t),
    ]


class Image(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("pixels", POINTER(Pixels)),
    ]


class Outputs(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("logits", c_void_p),
        ("probabilities", c_void_p),
        ("features", c_void_p),
        ("status", POINTER(c_int)),
        ("errors", c_void_p),
    ]


class InputTensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("data", c_void_p),
        ("order", c_int),
        ("images", c_int),
        ("height", c_int),
        ("width", c_int),
    ]


class Answer(Structure):
    _fields_ = [
        ("file", c_char_p),
        ("status", c_int),
        ("error", c_char_p),
        ("logits", POINTER(c_float)),
        ("probabilities", POINTER(c_float)),
        ("features", POINTER(c_float)),
    ]


class DetectedObject(Structure):
    _fields_ = [
        ("class_index", c_int),
        ("class_id", c_int64),
        ("class_name", c_char_p),
        ("score", c_float),
        ("box", c_float * 4),
    ]


class DetectOutputs(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("objects", POINTER(DetectedObject)),
        ("count", POINTER(c_int)),
        ("width", POINTER(c_int)),
        ("height", POINTER(c_int)),
        ("status", POINTER(c_int)),
        ("errors", c_void_p),
    ]


class DetectAnswer(Structure):
    _fields_ = [
        ("file", c_char_p),
        ("status", c_int),
        ("error", c_char_p),
        ("width", c_int),
        ("height", c_int),
        ("count", c_int),
        ("objects", POINTER(DetectedObject)),
    ]


class DetectOptions(Structure):
    _fields_ = [("size", c_size_t), ("threshold", c_double), ("draw", c_char_p)]


class Measure(Structure):
    _fields_ = [("name", c_char * 24), ("value", c_double)]


class Measures(Structure):
    _fields_ = [("list", Measure * 16), ("count", c_int)]


class TrainEpoch(Structure):
    _fields_ = [
        ("epoch", c_int64),
        ("epochs", c_int64),
        ("classes", c_int64),
        ("train_loss", c_double),
        ("learning_rate", c_double),
        ("images_per_second", c_double),
        ("data_share", c_double),
        ("seconds", c_double),
        ("validated", c_bool),
        ("best", c_bool),
        ("averaged", c_bool),
        ("val", Measures),
        ("val_ema", Measures),
        ("parts", Measures),
        ("bad_images", c_int64),
        ("ranks", c_char * 320),
    ]


class TrainResult(Structure):
    _fields_ = [
        ("run_directory", c_char * 4096),
        ("weights", c_char * 4096),
        ("sample_image", c_char * 4096),
        ("detector", c_bool),
        ("classes", c_int64),
        ("best_score", c_double),
        ("evaluated", c_bool),
        ("averaged", c_bool),
        ("val", Measures),
        ("val_ema", Measures),
        ("val_images", c_int64),
        ("val_skipped", c_int64),
        ("best_epoch", c_int64),
        ("epochs_done", c_int64),
        ("steps_done", c_int64),
        ("bad_images", c_int64),
        ("seconds", c_double),
        ("planned_memory", c_size_t),
        ("peak_memory", c_size_t),
    ]


ANSWER_HANDLER = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Answer))
DETECT_HANDLER = ctypes.CFUNCTYPE(None, c_void_p, POINTER(DetectAnswer))
PLAN_HANDLER = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
EPOCH_HANDLER = ctypes.CFUNCTYPE(None, c_void_p, POINTER(TrainEpoch))
LOG_HANDLER = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class TrainEvents(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("context", c_void_p),
        ("plan", PLAN_HANDLER),
        ("progress", c_void_p),
        ("epoch", EPOCH_HANDLER),
        ("begin", c_void_p),
    ]


# ---- the library ----
def _path() -> str:
    """CONVOY_LIBRARY, else the one beside this file, else the one of the system."""
    named = os.environ.get("CONVOY_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", LIBRARY_NAME)
    return beside if os.path.exists(beside) else LIBRARY_NAME


def _declare(library: ctypes.CDLL) -> None:
    """Arguments and results: a status is turned into an exception by checked()."""
    pointer, text = c_void_p, c_char_p
    image = [pointer, text, POINTER(Pixels)]
    paths = [pointer, POINTER(text), c_size_t]
    for name, result, arguments in (
        ("cvy_version", text, []),
        ("cvy_error", text, []),
        ("cvy_set_log_handler", None, [LOG_HANDLER, pointer]),
        ("cvy_classifier_open", c_int, [POINTER(ClassifierOptions), POINTER(pointer)]),
        ("cvy_classifier_open_context", c_int, [pointer, c_int, POINTER(pointer)]),
        ("cvy_classifier_close", None, [pointer]),
        ("cvy_classifier_stop", None, [pointer]),
        ("cvy_classifier_classes", c_int, [pointer]),
        ("cvy_classifier_image_size", c_int, [pointer]),
        ("cvy_classifier_features", c_int, [pointer]),
        ("cvy_classifier_normalization", None, [pointer, POINTER(c_float), POINTER(c_float)]),
        ("cvy_classifier_feature_shape", None, [pointer, POINTER(c_int)]),
        ("cvy_classifier_class_name", text, [pointer, c_int]),
        ("cvy_classifier_arch", text, [pointer]),
        ("cvy_classify_images", c_int, [pointer, POINTER(Image), c_int, POINTER(Outputs)]),
        ("cvy_classify_tensor", c_int, [pointer, POINTER(InputTensor), POINTER(Outputs)]),
        ("cvy_classify_paths", c_int, paths + [ANSWER_HANDLER, pointer]),
        ("cvy_top_k", c_int, [pointer, c_int, c_int, POINTER(c_int)]),
        ("cvy_detector_open", c_int, [POINTER(ClassifierOptions), POINTER(pointer)]),
        ("cvy_detector_open_context", c_int, [pointer, c_int, POINTER(pointer)]),
        ("cvy_detector_close", None, [pointer]),
        ("cvy_detector_stop", None, [pointer]),
        ("cvy_detector_classes", c_int, [pointer]),
        ("cvy_detector_class_name", text, [pointer, c_int]),
        ("cvy_detector_class_id", c_int64, [pointer, c_int]),
        ("cvy_detector_arch", text, [pointer]),
        ("cvy_detect_memory", c_int, [pointer, text, text, c_size_t, c_double, POINTER(DetectedObject), POINTER(c_int),
                                      POINTER(c_int), POINTER(c_int)]),
        ("cvy_detect_pixels", c_int, image + [c_double, POINTER(DetectedObject), POINTER(c_int)]),
        ("cvy_detect_images", c_int, [pointer, POINTER(Image), c_int, c_double, POINTER(DetectOutputs)]),
        ("cvy_detect_paths", c_int, paths + [POINTER(DetectOptions), DETECT_HANDLER, pointer]),
        ("cvy_train_options_new", pointer, []),
        ("cvy_train_options_free", None, [pointer]),
        ("cvy_train_options_set", c_int, [pointer, text, text, c_int]),
        ("cvy_train_options_set_data", c_int, [pointer, text]),
        ("cvy_training_new", c_int, [pointer, POINTER(TrainEvents), POINTER(pointer)]),
        ("cvy_training_run", c_int, [pointer, POINTER(TrainResult)]),
        ("cvy_training_stop", None, [pointer]),
        ("cvy_training_free", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
_logger = logging.getLogger("convoy")


@LOG_HANDLER
def _log(_context: object, level: int, text: bytes) -> None:
    _logger.log(_LEVELS[level], "%s", text.decode(errors="replace"))


# ctypes.CDLL gives the interpreter's lock back while a function runs.
library = ctypes.CDLL(_path())
library.cvy_version.restype = c_char_p
if library.cvy_version().decode().split(".")[:2] != VERSION.split("."):
    raise ImportError(f"{_path()} is version {library.cvy_version().decode()}, and this package needs {VERSION}")
_declare(library)
library.cvy_set_log_handler(_log, None)


def checked(status: int) -> None:
    """Raise what the library says where a call has failed."""
    if status != Status.OK:
        raise error(status, library.cvy_error().decode(errors="replace"))


__all__ = [name for name in dir() if not name.startswith("_")] + ["byref", "c_uint8"]
