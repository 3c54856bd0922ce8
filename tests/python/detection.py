"""The Detector of the Python package: python detection.py DATA RUN. DATA has boxes (convoy dataset shapes --boxes); a training of
some steps goes to RUN. numpy, Pillow and torch are used where they are there; what is missing is said."""

import array
import glob
import os
import sys
import threading

import convoy
import support
from support import check, module, raises

data, run = sys.argv[1:3]
pictures = sorted(glob.glob(os.path.join(data, "val", "*.jpg")))


def alike(one, other):
    """The same objects; batches of other sizes are computed by other kernels, whose sums differ in their last bits."""
    return len(one) == len(other) and all(
        a.class_id == b.class_id and abs(a.score - b.score) < 1e-4 and all(abs(x - y) < 0.01 for x, y in zip(a.box, b.box))
        for a, b in zip(one, other)
    )


def trained():
    """Some steps from random weights: it finds something everywhere, at low scores."""
    training = convoy.train(
        data, arch="ssd320", image_size=64, batch_size=2, steps=2, warmup_steps=1, lr=0.002, warmup_lr=0.001, workspace=run, threads=1
    )
    epochs = list(training)
    result = training.result
    check(result.detector and result.classes == 3 and result.steps_done == 2, f"the result of the training: {result}")
    check(len(epochs) == 1 and 0 <= epochs[0].val["ap"] <= epochs[0].val["ap50"] <= 100, f"measures: {epochs}")
    return os.path.join(run, "checkpoint.safetensors")


def answers(detector, size):
    """What is said of an image, and by which threshold."""
    found = detector.detect(pictures[0], threshold=0.0)
    check(3 < len(found) <= 100, f"{len(found)} objects at threshold 0")
    check(all(a.score >= b.score for a, b in zip(found, found[1:])), "the best first")
    for one in found:
        x, y, width, height = one.box
        check(x >= 0 and y >= 0 and width > 0 and height > 0, f"a box: {one}")
        check(x + width <= size[0] + 1e-3 and y + height <= size[1] + 1e-3, f"a box outside of {size}: {one}")
        check(one.class_id == one.class_index + 1 and one.name == detector.classes[one.class_index], f"a class: {one}")
    limit = found[2].score
    check(detector.detect(pictures[0], limit) == [one for one in found if one.score >= limit], "a threshold")
    check(detector.detect(pictures[0], 1.0) == [], "nothing is certain")
    raises(convoy.UsageError, "threshold", detector.detect, pictures[0], 1.5)
    return found


def sources(detector, found, size):
    """The file, its bytes, its pixels in what holds them: the same objects."""
    with open(pictures[0], "rb") as file:
        encoded = file.read()
    for kind in (bytes, bytearray, memoryview, lambda bytes_of: array.array("B", bytes_of)):
        check(detector.detect(kind(encoded), 0.0) == found, "bytes get other objects than the file")
    pillow, numpy, torch = module("PIL.Image"), module("numpy"), module("torch")
    if pillow:
        from PIL import Image

        with Image.open(pictures[0]) as image:
            check(image.size == size, f"the size of an image: {size}")
            image.save("lossless.png")
            pixels = detector.detect(image.convert("RGB"), 0.0)
        check(pixels == detector.detect("lossless.png", 0.0), "Pillow's pixels get other objects than the file with them")
    if pillow and numpy:
        frame = numpy.asarray(Image.open("lossless.png"))
        check(detector.detect(frame, 0.0) == pixels, "numpy's pixels")
        check(detector.detect(numpy.ascontiguousarray(frame[:, :, ::-1]), 0.0, order="bgr") == pixels, "OpenCV's order")
        wide = numpy.zeros((frame.shape[0], frame.shape[1] + 5, 3), numpy.uint8)
        wide[:, 2:-3] = frame
        check(detector.detect(wide[:, 2:-3], 0.0) == pixels, "a view with a stride")
        check(detector.detect(frame[:, :, ::-1], 0.0) != pixels, "other colours get the same objects")
    if pillow and numpy and torch:
        check(detector.detect(torch.from_numpy(frame.copy()), 0.0) == pixels, "a tensor of PyTorch")
    raises(convoy.BadDataError, "", detector.detect, b"no image")
    raises(FileNotFoundError, "missing", detector.detect, "missing.jpg")


def several(detector, found):
    """Images of other sizes and kinds at once: each has what it has alone."""
    with open(pictures[0], "rb") as file:
        encoded = file.read()
    given = [encoded, *pictures[1:], pictures[0]]
    said = detector.detect_many(given, 0.0)
    check(len(said) == len(given) > 2, f"{len(said)} answers to {len(given)} images")
    check(alike(said[0], found) and alike(said[-1], found), "an image among others")
    for image, one in zip(given, said):
        check(alike(detector.detect(image, 0.0), one), f"among others {image!r:.40} gets other objects")
    check([len(one) for one in detector.detect_many(given, 1.0)] == [0] * len(given), "nothing is certain")
    check(detector.detect_many([]) == [], "no images")
    raises(convoy.BadDataError, "", detector.detect_many, [pictures[0], b"no image"])
    raises(convoy.UsageError, "a list", detector.detect_many, pictures[0])
    raises(convoy.UsageError, "threshold", detector.detect_many, pictures[:2], -1.0)


def files(detector, found):
    said = detector.detect_files([os.path.join(data, "val"), __file__], 0.0)
    check(len(said) == len(pictures) + 1 and alike(said[0].detections, found), "files and folders")
    check(isinstance(said[-1].error, convoy.BadDataError), f"a file that is no image: {said[-1]}")
    try:
        detector.detect_files(pictures[:1], found[0].score, draw="drawn")
        drawn = os.path.join("drawn", os.path.basename(pictures[0]))
        with open(drawn, "rb") as copy, open(pictures[0], "rb") as file:
            check(copy.read() != file.read(), "nothing is drawn")
    except convoy.UnavailableError as missing:
        print(f"part skipped: {missing}")


def threads(detector, found):
    """Contexts share the weights, each in a thread of its own."""
    contexts = [detector.context() for _ in range(3)]
    wrong = []

    def work(context):
        for _ in range(3):
            if context.detect(pictures[0], 0.0) != found:
                wrong.append(context)

    workers = [threading.Thread(target=work, args=(context,)) for context in contexts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    check(not wrong, "contexts in threads find other objects")
    detector.close()  # they keep what they share
    check(contexts[0].detect(pictures[0], 0.0) == found, "a context after its network was closed")
    raises(convoy.UsageError, "closed", detector.detect, pictures[0])
    for context in contexts:
        context.close()


weights = trained()
with convoy.Classifier(weights, threads=1) as classifier:
    raises(convoy.BadDataError, "does not classify", classifier.classify, pictures[0])
with convoy.Detector(weights, threads=1) as network:
    check(network.arch == "ssd320" and network.num_classes == 3, "what the network is")
    first = network.detect_files(pictures[:1])[0]
    width_height = (first.width, first.height)
    objects = answers(network, width_height)
    sources(network, objects, width_height)
    several(network, objects)
    files(network, objects)
    with convoy.Detector(open(weights, "rb").read(), threads=1) as in_memory:
        check(in_memory.detect(pictures[0], 0.0) == objects, "weights from memory find other objects")
    threads(network, objects)
print(f"{support.checks} checks passed")
