"""Images of any kind as the library takes them: files' bytes, or pixels where they lie.

Memory that follows the buffer protocol or DLPack is read in place; nothing is copied unless its pixels do not follow one another
along a row. Neither numpy nor Pillow is needed."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint64
from ctypes import c_char_p, c_void_p, py_object, pythonapi
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple, Union

from ._library import Image, InputTensor, Pixels, UsageError

RGB, BGR, RGBA, BGRA, GREY = range(5)
FORMATS = {"rgb": RGB, "bgr": BGR, "rgba": RGBA, "bgra": BGRA, "grey": GREY, "gray": GREY}
NCHW, NHWC = range(2)


# ---- memory of other objects ----
class _Buffer(Structure):
    """Py_buffer of the C API."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_STRIDED_WITH_FORMAT = 0x1C  # PyBUF_RECORDS_RO
_get_buffer = pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(_Buffer), c_int], c_int
_release_buffer = pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_Buffer)], None


class _DLDevice(Structure):
    _fields_ = [("kind", c_int32), ("index", c_int32)]


class _DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _DLDevice),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_capsule_pointer = pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [py_object, c_char_p], c_void_p
_CPU, _CUDA_HOST = 1, 3
_UNSIGNED, _FLOAT = 1, 2


class Array(NamedTuple):
    """Memory that holds numbers. `owner` keeps it."""

    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # bytes
    kind: str  # "uint8", "float32" or what else it holds
    owner: Any


class _HeldBuffer:
    """A view of another object's memory, given back when it is not needed any more."""

    def __init__(self, source: Any) -> None:
        self.view = _Buffer()
        self.held = False
        if _get_buffer(source, byref(self.view), _STRIDED_WITH_FORMAT) == 0:
            self.held = True

    def __del__(self) -> None:
        if self.held:
            self.held = False
            _release_buffer(byref(self.view))


def _from_buffer(source: Any) -> Array:
    held = _HeldBuffer(source)
    view = held.view
    shape = tuple(view.shape[i] for i in range(view.ndim))
    strides = tuple(view.strides[i] for i in range(view.ndim))
    code = (view.format or b"B").decode().lstrip("@=<")
    kinds = {"B": "uint8", "c": "uint8", "f": "float32"}
    return Array(view.buf or 0, shape, strides, kinds.get(code, code), held)


def _from_dlpack(source: Any) -> Array:
    device = source.__dlpack_device__()
    if device[0] not in (_CPU, _CUDA_HOST):
        raise UsageError("a tensor on a device cannot be read: bring it to the CPU first")
    capsule = source.__dlpack__()
    tensor = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), POINTER(_DLTensor)).contents
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    item = tensor.bits * tensor.lanes // 8
    strides, step = [], item
    for i in reversed(range(tensor.ndim)):
        strides.insert(0, tensor.strides[i] * item if tensor.strides else step)
        step *= shape[i]
    names = {(_UNSIGNED, 8): "uint8", (_FLOAT, 32): "float32"}
    kind = names.get((tensor.code, tensor.bits), f"type {tensor.code} of {tensor.bits} bits")
    return Array((tensor.data or 0) + tensor.byte_offset, shape, tuple(strides), kind, (capsule, source))


def as_array(source: Any) -> Optional[Array]:
    """The memory of an object that offers it; None: it offers none."""
    try:
        memoryview(source)
    except TypeError:
        return _from_dlpack(source) if hasattr(source, "__dlpack__") else None
    return _from_buffer(source)


# ---- pixels ----
def _gathered(array: Array, source: Any) -> Array:
    """A copy whose pixels follow one another: of a view with steps, a transposed or a mirrored one."""
    try:
        data = memoryview(source).tobytes()
    except TypeError:
        raise UsageError("the pixels of a row must follow one another: make the tensor contiguous first") from None
    _, width, channels = array.shape
    return array._replace(address=_from_buffer(data).address, strides=(width * channels, channels, 1), owner=data)


def _pixels_of(array: Array, order: str, source: Any) -> "Prepared":
    """uint8, (height, width) or (height, width, 1, 3 or 4)."""
    if array.kind != "uint8":
        raise UsageError(f"pixels are uint8, not {array.kind}; normalised floats go into logits_of_tensor")
    if len(array.shape) == 2:
        array = array._replace(shape=array.shape + (1,), strides=array.strides + (1,))
    if len(array.shape) != 3 or array.shape[2] not in (1, 3, 4):
        raise UsageError(f"pixels are (height, width) or (height, width, 1, 3 or 4), not {array.shape}")
    height, width, channels = array.shape
    wanted = FORMATS.get(order.lower())
    if wanted is None:
        raise UsageError(f"the order of channels is one of {', '.join(FORMATS)}, not '{order}'")
    kind = GREY if channels == 1 else wanted
    if channels == 4 and kind in (RGB, BGR):
        kind += RGBA - RGB
    if (channels == 3) != (kind in (RGB, BGR)):
        raise UsageError(f"'{order}' does not have {channels} channels")
    row, column, channel = array.strides
    if height > 0 and width > 0 and (column != channels or (channels > 1 and channel != 1) or row < width * channels):
        array = _gathered(array, source)
        row = array.strides[0]
    pixels = Pixels(ctypes.sizeof(Pixels), array.address, kind, width, height, row if height > 1 else width * channels)
    return Prepared(0, 0, pixels, array)


class Prepared(NamedTuple):
    """An image for the library: the bytes of a file, or pixels. `owner` keeps their memory."""

    address: int
    size: int
    pixels: Optional[Pixels]
    owner: Any


PathLike = Union[str, "os.PathLike[str]"]


def _is_picture(source: Any) -> bool:
    """Pillow's image."""
    return hasattr(source, "tobytes") and hasattr(source, "mode") and hasattr(source, "convert")


def _is_one_image(source: Any) -> bool:
    if isinstance(source, (str, bytes, os.PathLike)) or _is_picture(source):
        return True
    array = None if isinstance(source, (list, tuple)) else as_array(source)
    if array is None or array.kind != "uint8":
        return False
    return len(array.shape) < 3 or (len(array.shape) == 3 and array.shape[2] in (1, 3, 4))


def image_list(images: Iterable[Any]) -> List[Any]:
    """Several images. One by itself is refused: its letters, bytes or rows would be taken for images."""
    if _is_one_image(images):
        raise UsageError("several images are a list of them, one as well: [image]")
    return list(images)


def paths_of(paths: Iterable[PathLike]) -> List[PathLike]:
    """Several paths. One by itself is refused: its letters would be taken for paths."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise UsageError("several paths are a list of them, one as well: [path]")
    return list(paths)


def prepare(source: Any, order: str = "rgb") -> Prepared:
    """A path; bytes or other memory of one dimension: a file; Pillow's image; an array or tensor of pixels."""
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            source = file.read()
    if _is_picture(source):
        image = source if source.mode in ("L", "RGB", "RGBA") else source.convert("RGB")
        data = image.tobytes()
        width, height = image.size
        channels = {"L": 1, "RGB": 3, "RGBA": 4}[image.mode]
        held = _from_buffer(data)
        shape, strides = (height, width, channels), (width * channels, channels, 1)
        return _pixels_of(held._replace(shape=shape, strides=strides), "rgb", data)
    array = as_array(source)
    if array is None:
        raise UsageError(f"an image is a path, bytes, an array, Pillow's image or a DLPack tensor, not {type(source).__name__}")
    if len(array.shape) == 1 and array.kind == "uint8":
        if array.strides[0] != 1:
            raise UsageError("the bytes of a file must follow one another")
        return Prepared(array.address, array.shape[0], None, array)
    return _pixels_of(array, order, source)


def prepare_tensor(source: Any) -> Tuple[InputTensor, Array]:
    """float32 (N, 3, H, W) or (N, H, W, 3), one row after another."""
    array = as_array(source)
    if array is None or array.kind != "float32" or len(array.shape) != 4:
        raise UsageError("a tensor is float32, (N, 3, H, W) or (N, H, W, 3)")
    n, a, b, c = array.shape
    if a != 3 and c != 3:
        raise UsageError(f"a tensor is (N, 3, H, W) or (N, H, W, 3), not {array.shape}")
    step = 4
    for extent, stride in zip(reversed(array.shape), reversed(array.strides)):
        if extent > 1 and stride != step:
            raise UsageError("a tensor's numbers must follow one another: make it contiguous first")
        step *= extent
    order, height, width = (NCHW, b, c) if a == 3 else (NHWC, a, b)
    return InputTensor(ctypes.sizeof(InputTensor), array.address, order, n, height, width), array


def as_images(prepared: "list[Prepared]") -> "ctypes.Array[Image]":
    """Them as the library's array. The caller keeps `prepared` for as long."""
    images = (Image * max(1, len(prepared)))()
    for image, one in zip(images, prepared):
        image.size = ctypes.sizeof(Image)
        if one.pixels is not None:
            image.pixels = ctypes.pointer(one.pixels)
        else:
            image.data = one.address
            image.bytes = one.size
    return images


__all__ = ["Prepared", "prepare", "prepare_tensor", "as_images", "image_list", "paths_of", "PathLike"]
