"""Finding objects on images."""

from __future__ import annotations

from ctypes import byref, c_int, cast, c_char_p, sizeof
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

from ._images import PathLike, as_images, image_list, paths_of, prepare
from ._library import (
    DETECT_HANDLER,
    ConvoyError,
    DetectedObject,
    DetectOptions,
    DetectOutputs,
    Status,
    checked,
    error,
    library as _c,
)
from ._network import Network, encoded, path_list

_OBJECTS_MAX = 100


class Detection(NamedTuple):
    """An object on an image. `box`: x, y, width, height in pixels; `class_id`: of the data set."""

    class_index: int
    class_id: int
    name: Optional[str]
    score: float
    box: Tuple[float, float, float, float]


class DetectionAnswer(NamedTuple):
    """What detect_files() says of a file: its objects, or why there are none; width and height of the image in pixels."""

    file: str
    width: int
    height: int
    detections: List[Detection]
    error: Optional[ConvoyError]


def _detections(objects: Any, count: int) -> List[Detection]:
    return [
        Detection(
            one.class_index,
            one.class_id,
            None if one.class_name is None else one.class_name.decode(errors="replace"),
            one.score,
            (one.box[0], one.box[1], one.box[2], one.box[3]),
        )
        for one in objects[:count]
    ]


class Detector(Network):
    """Says where objects are on images, and of which class."""

    _kind = "detector"

    def detect(self, image: Any, threshold: float = 0.5, *, order: str = "rgb") -> List[Detection]:
        """The objects that score `threshold` or more, the best first; at most 100."""
        prepared = prepare(image, order)
        objects = (DetectedObject * _OBJECTS_MAX)()
        count = c_int()
        with self._lock:
            if prepared.pixels is not None:
                status = _c.cvy_detect_pixels(
                    self._open_handle, b"the image", byref(prepared.pixels), threshold, objects, byref(count)
                )
            else:
                status = _c.cvy_detect_memory(
                    self._open_handle,
                    b"the image",
                    cast(prepared.address, c_char_p),
                    prepared.size,
                    threshold,
                    objects,
                    byref(count),
                    None,
                    None,
                )
            checked(status)
            return _detections(objects, count.value)  # the names are the network's

    def detect_many(self, images: Iterable[Any], threshold: float = 0.5, *, order: str = "rgb") -> List[List[Detection]]:
        """detect() for images of any sizes, decoded in threads and computed in batches. The first one that cannot be read is
        raised."""
        prepared = [prepare(image, order) for image in image_list(images)]
        if not prepared:
            return []
        many = len(prepared)
        objects = (DetectedObject * (many * _OBJECTS_MAX))()
        counts = (c_int * many)()
        outputs = DetectOutputs(size=sizeof(DetectOutputs), objects=objects, count=counts)
        with self._lock:
            checked(_c.cvy_detect_images(self._open_handle, as_images(prepared), many, threshold, byref(outputs)))
            firsts = range(0, many * _OBJECTS_MAX, _OBJECTS_MAX)
            return [_detections(objects[first : first + count], count) for first, count in zip(firsts, counts)]

    def detect_files(
        self, paths: Iterable[PathLike], threshold: float = 0.5, *, draw: Optional[PathLike] = None
    ) -> List[DetectionAnswer]:
        """Files and folders (read recursively, sorted). A bad file has `error` and does not stop the rest. `draw`: a folder for
        copies with the objects drawn on them."""
        given = paths_of(paths)
        options = DetectOptions(size=sizeof(DetectOptions), threshold=threshold, draw=encoded(draw))

        def answer_of(answer: Any) -> DetectionAnswer:
            name = answer.file.decode(errors="surrogateescape")
            if answer.status != Status.OK:
                return DetectionAnswer(name, 0, 0, [], error(answer.status, answer.error.decode(errors="replace")))
            found = _detections(answer.objects, answer.count)
            return DetectionAnswer(name, answer.width, answer.height, found, None)

        return self._answer_files(
            lambda handler: _c.cvy_detect_paths(
                self._open_handle, path_list(given), len(given), byref(options), handler, None
            ),
            DETECT_HANDLER,
            answer_of,
        )
