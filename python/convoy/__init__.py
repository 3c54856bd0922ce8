"""Convoy: trains and runs convolutional networks.

    import convoy

    with convoy.Classifier("model_best.safetensors") as classifier:
        print(classifier.classify("photo.jpg")[0])

    for epoch in convoy.train("photos", epochs=10):
        print(epoch.epoch, epoch.val["top1"])

An image is a path, the bytes of a file, an array of pixels (numpy's or any other of the buffer protocol: uint8, height x width x 3),
Pillow's image, or a DLPack tensor on the CPU. Failures are raised as ConvoyError, with the library's sentence and `status`. While
the library computes, other threads of Python run.
"""

from ._classifier import Answer, Classifier, Prediction
from ._detector import Detection, DetectionAnswer, Detector
from ._library import (
    BadDataError,
    ConvoyError,
    NoInputError,
    OutOfMemoryError,
    OutputError,
    Status,
    Stopped,
    UnavailableError,
    UsageError,
    library as _c,
)
from ._train import Epoch, Result, Training, train

__version__: str = _c.cvy_version().decode()

__all__ = [
    "Answer",
    "BadDataError",
    "Classifier",
    "ConvoyError",
    "Detection",
    "DetectionAnswer",
    "Detector",
    "Epoch",
    "NoInputError",
    "OutOfMemoryError",
    "OutputError",
    "Prediction",
    "Result",
    "Status",
    "Stopped",
    "Training",
    "UnavailableError",
    "UsageError",
    "train",
]
