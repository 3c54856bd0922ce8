"""Classifying images."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_void_p, POINTER, sizeof
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

from ._images import PathLike, as_images, image_list, paths_of, prepare, prepare_tensor
from ._library import ANSWER_HANDLER, ConvoyError, Outputs, Status, UsageError, checked, error, library as _c
from ._network import Network, path_list


class Prediction(NamedTuple):
    """A class and how probable it is."""

    index: int
    name: Optional[str]
    probability: float


class Answer(NamedTuple):
    """What classify_files() says of a file: predictions, or why there are none."""

    file: str
    predictions: List[Prediction]
    error: Optional[ConvoyError]


def _matrix(values: Any, rows: int, columns: int) -> Any:
    """numpy's array over `values` where numpy is there, else a memoryview: float32, (rows, columns)."""
    try:
        import numpy
    except ImportError:
        return memoryview(values).cast("B").cast("f", (rows, columns)) if rows * columns else memoryview(values)
    return numpy.frombuffer(values, dtype=numpy.float32, count=rows * columns).reshape(rows, columns)


class Classifier(Network):
    """Names what is on images."""

    _kind = "classifier"

    def __init__(self, weights: Any, *, features: bool = True, **options: Any) -> None:
        """`weights`: a file, or its bytes. features=False leaves out what embed() needs; feature_layer="layer3" makes embed()
        give the map of this layer, flat (feature_shape says how). `options`: arch, num_classes, padding, device, precision,
        threads, batch_size, image_size, resize, workers, class_names, data_backend, interpolation, as on the command line."""
        super().__init__(weights, features=features, **options)

    @property
    def image_size(self) -> int:
        """Side of the square images that the network sees, pixels."""
        return self._ask("image_size")

    @property
    def num_features(self) -> int:
        """Numbers of an image in embed(); 0 without features."""
        return self._ask("features")

    @property
    def normalization(self) -> Tuple[Tuple[float, ...], Tuple[float, ...]]:
        """Mean and deviation of the channels R, G, B from 0 to 255: what logits_of_tensor() takes is (x - mean) / deviation."""
        mean, deviation = (c_float * 3)(), (c_float * 3)()
        self._ask("normalization", mean, deviation)
        return tuple(mean), tuple(deviation)

    @property
    def feature_shape(self) -> Tuple[int, int, int]:
        """Channels, height and width of these numbers: (512, 1, 1) before the last layer, a map of a feature_layer."""
        shape = (c_int * 3)()
        self._ask("feature_shape", shape)
        return shape[0], shape[1], shape[2]

    def _top(self, probabilities: Any, count: int) -> List[Prediction]:
        classes = self.num_classes
        indices = (c_int * max(1, min(count, classes)))()
        found = _c.cvy_top_k(ctypes.cast(probabilities, c_void_p), classes, count, indices)
        return [Prediction(i, self._class_name(i), probabilities[i]) for i in indices[:found]]

    def _compute(self, images: List[Any], order: str, what: str, columns: int) -> Any:
        """What the network says of images, (N, columns). The first one that cannot be read is raised."""
        prepared = [prepare(image, order) for image in images]
        values = (c_float * max(1, len(prepared) * columns))()
        outputs = Outputs(size=sizeof(Outputs))
        setattr(outputs, what, ctypes.addressof(values))
        if prepared:
            with self._lock:
                checked(_c.cvy_classify_images(self._open_handle, as_images(prepared), len(prepared), byref(outputs)))
        return values

    def classify(self, image: Any, top: int = 5, *, order: str = "rgb") -> List[Prediction]:
        """The `top` most probable classes of an image, the best first. `order`: of the channels of an array, "rgb" or "bgr"."""
        return self._top(self._compute([image], order, "probabilities", self.num_classes), top)

    def classify_many(self, images: Iterable[Any], top: int = 5, *, order: str = "rgb") -> List[List[Prediction]]:
        """classify() for images of any sizes, decoded in threads and computed in batches."""
        images = image_list(images)
        classes = self.num_classes
        values = self._compute(images, order, "probabilities", classes)
        rows = [(c_float * classes).from_buffer(values, 4 * classes * i) for i in range(len(images))]
        return [self._top(row, top) for row in rows]

    def probabilities(self, images: Iterable[Any], *, order: str = "rgb") -> Any:
        """Those of all classes, float32, (N, classes)."""
        images = image_list(images)
        return _matrix(self._compute(images, order, "probabilities", self.num_classes), len(images), self.num_classes)

    def logits(self, images: Iterable[Any], *, order: str = "rgb") -> Any:
        """What the last layer says, float32, (N, classes)."""
        images = image_list(images)
        return _matrix(self._compute(images, order, "logits", self.num_classes), len(images), self.num_classes)

    def embed(self, images: Iterable[Any], *, order: str = "rgb") -> Any:
        """The features that the last layer reads, by which images can be compared, or the map of feature_layer: float32,
        (N, num_features)."""
        if self.num_features == 0:
            raise UsageError("the classifier was opened with features=False")
        images = image_list(images)
        return _matrix(self._compute(images, order, "features", self.num_features), len(images), self.num_features)

    def logits_of_tensor(self, tensor: Any) -> Any:
        """logits() of images that are the network's input already: float32, normalised, (N, 3, S, S) or (N, S, S, 3) with
        S = image_size."""
        given, owner = prepare_tensor(tensor)
        values = (c_float * max(1, given.images * self.num_classes))()
        outputs = Outputs(size=sizeof(Outputs), logits=ctypes.addressof(values))
        with self._lock:
            checked(_c.cvy_classify_tensor(self._open_handle, byref(given), byref(outputs)))
        del owner
        return _matrix(values, given.images, self.num_classes)

    def classify_files(self, paths: Iterable[PathLike], top: int = 5) -> List[Answer]:
        """Files and folders (read recursively, sorted). A bad file has `error` and does not stop the rest; that there is no
        file at all is raised."""
        given = paths_of(paths)
        classes = self.num_classes

        def answer_of(answer: Any) -> Answer:
            name = answer.file.decode(errors="surrogateescape")
            if answer.status != Status.OK:
                return Answer(name, [], error(answer.status, answer.error.decode(errors="replace")))
            row = ctypes.cast(answer.probabilities, POINTER(c_float * classes)).contents
            return Answer(name, self._top(row, top), None)

        return self._answer_files(
            lambda handler: _c.cvy_classify_paths(self._open_handle, path_list(given), len(given), handler, None),
            ANSWER_HANDLER,
            answer_of,
        )
