"""The Python package against a library: python package.py DATA RUN. DATA holds train/ and val/; RUN is where a training goes.
numpy, Pillow and torch are used where they are there; what is missing is said."""

import array
import ctypes
import glob
import os
import subprocess
import sys
import threading

import convoy
from convoy import _images, _library
import support
from support import check, module, raises

data, run = sys.argv[1:3]
pictures = sorted(glob.glob(os.path.join(data, "val", "*", "*.jpg")))


def alike(one, other):
    """The same classes; batches of other sizes are computed by other kernels, whose sums differ in their last bits."""
    return [(p.index, p.name) for p in one] == [(p.index, p.name) for p in other] and all(
        abs(a.probability - b.probability) < 1e-4 for a, b in zip(one, other)
    )


def trained():
    """A run of two epochs; another that is stopped after the first of many."""
    epochs = []
    with convoy.train(data, arch="resnet18", image_size=32, batch_size=10, epochs=2, workspace=run, threads=1) as training:
        beside = convoy.train(data, arch="resnet18", image_size=32, batch_size=10, epochs=1000, workspace=run + "-beside", threads=1)
        next(beside)
        beside.close()  # which ends this one alone
        check(beside.result.stopped, "the training beside another one")
        for epoch in training:
            epochs.append(epoch)
    check([epoch.epoch for epoch in epochs] == [0, 1] or [epoch.epoch for epoch in epochs] == [1, 2], f"epochs: {epochs}")
    check("top1" in epochs[-1].val and epochs[-1].train_loss > 0, f"an epoch's numbers: {epochs[-1]}")
    result = training.result
    check(result.epochs_done == 2 and not result.stopped and os.path.exists(result.weights), f"the result: {result}")
    check("resnet18" in training.plan, "the plan's text")
    with convoy.train(data, arch="resnet18", image_size=32, batch_size=10, epochs=1000, workspace=run + "-stopped", threads=1) as endless:
        next(endless)
    check(endless.result.stopped and endless.result.epochs_done < 1000, f"the stopped run: {endless.result}")
    check(os.path.exists(os.path.join(run + "-stopped", "checkpoint.safetensors")), "no checkpoint of the stopped run")
    early = convoy.train(data, arch="resnet18", image_size=32, batch_size=10, epochs=1000, workspace=run + "-early", threads=1)
    early.stop()
    check(early.run().stopped, "a stop before the first step is lost")
    left = convoy.train(data, arch="resnet18", image_size=32, batch_size=10, epochs=1000, workspace=run + "-left", threads=1)
    next(left)
    del left  # as a loop does that an exception leaves
    check(os.path.exists(os.path.join(run + "-left", "checkpoint.safetensors")), "no checkpoint of a forgotten run")
    code = f"import convoy; t = convoy.train({data!r}, arch='resnet18', image_size=32, batch_size=10, epochs=1000, " \
        f"workspace={run + '-exit'!r}, threads=1, lr=None); next(t)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    check(os.path.exists(os.path.join(run + "-exit", "checkpoint.safetensors")), "no checkpoint at the end of the program")
    raises(convoy.UsageError, "epoks", convoy.train, data, epoks=3)
    raises(convoy.UsageError, "batch-size", convoy.train, data, batch_size="many")
    raises(convoy.NoInputError, "nowhere", convoy.train("nowhere", epochs=1, workspace=run + "-none").run)
    return result.weights


def interrupted(weights):
    """What happens after a bad file is not lost: a stop, an exception of the program's own."""
    with convoy.Classifier(weights, threads=1, batch_size=1) as classifier:
        top, asked = classifier._top, []

        def stopping(*arguments):
            asked.append(1)
            classifier.stop()
            return top(*arguments)

        classifier._top = stopping
        raises(convoy.Stopped, "stopped", classifier.classify_files, [weights] + pictures * 4)
        check(len(asked) < 4 * len(pictures), "it went on after the stop")

        def failing(*arguments):
            raise KeyboardInterrupt("by hand")

        classifier._top = failing
        raises(KeyboardInterrupt, "by hand", classifier.classify_files, pictures)
        classifier._top = top
        check(len(classifier.classify_files(pictures)) == len(pictures), "a stop that stays")


def answered(weights):
    """The same answer for a file, its bytes, its pixels, whatever they lie in."""
    classifier = convoy.Classifier(weights, threads=1)
    check(classifier.arch == "resnet18" and classifier.image_size == 32, "what the network is")
    check(classifier.num_classes == len(os.listdir(os.path.join(data, "val"))), "the number of classes")
    first = classifier.classify(pictures[0])
    check(len(first) == min(5, classifier.num_classes), "the number of predictions")
    check(all(a.probability >= b.probability for a, b in zip(first, first[1:])), "their order")
    check(first[0].name == classifier.classes[first[0].index], "the name")
    with open(pictures[0], "rb") as file:
        encoded = file.read()
    for kind in (bytes, bytearray, memoryview, lambda data: array.array("B", data)):
        check(classifier.classify(kind(encoded)) == first, "bytes get another answer than the file")
    check(alike(classifier.classify_many(pictures[:3])[0], first), "several images get another answer")
    check(classifier.classify_many([]) == [], "no images")
    features = classifier.embed(pictures[:2])
    check(memoryview(features).shape == (2, 512), "the shape of features")
    mean, deviation = classifier.normalization
    check(abs(mean[0] - 123.675) < 1e-4 and abs(deviation[2] - 57.375) < 1e-4, "the normalisation")
    check(classifier.feature_shape == (512, 1, 1), "what features are")
    with convoy.Classifier(weights, threads=1, feature_layer="layer2") as maps:
        check(maps.feature_shape == (128, 4, 4) and maps.num_features == 2048, "what a layer's features are")
        check(memoryview(maps.embed(pictures[:2])).shape == (2, 2048), "the shape of a layer's features")
    with convoy.Classifier(weights, threads=1, features=False) as plain:
        raises(convoy.UsageError, "features=False", plain.embed, pictures[:1])
    in_memory = convoy.Classifier(open(weights, "rb").read(), threads=1)
    check(in_memory.classify(pictures[0]) == first, "weights from memory get another answer")
    in_memory.close()
    in_memory.close()
    raises(convoy.UsageError, "closed", in_memory.classify, pictures[0])
    files = classifier.classify_files([os.path.join(data, "val"), weights])
    check(len(files) == len(pictures) + 1 and alike(files[0].predictions, first), "files and folders")
    check(isinstance(files[-1].error, convoy.BadDataError), f"a file that is no image: {files[-1]}")
    for alone in (pictures[0], encoded, bytearray(encoded), memoryview(bytes(3600)).cast("B", (40, 30, 3))):
        for several in (classifier.classify_many, classifier.probabilities, classifier.logits, classifier.embed):
            raises(convoy.UsageError, "a list", several, alone)
    raises(convoy.UsageError, "a list", classifier.classify_files, data)
    interrupted(weights)
    raises(convoy.NoInputError, "missing", convoy.Classifier, "missing.safetensors")
    raises(FileNotFoundError, "missing", classifier.classify, "missing.jpg")
    failure = raises(convoy.ConvoyError, "", classifier.classify, b"no image")
    check(failure.status == convoy.Status.BAD_DATA, "the status of an exception")
    raises(convoy.UsageError, "not int", classifier.classify, 7)
    raises(convoy.BadDataError, "classifies", convoy.Detector, weights)
    return classifier, first


def arrays(classifier):
    """Arrays of numpy and others: views are read where they lie, and copied where a row is not whole."""
    numpy = module("numpy")
    if not numpy:
        return
    height, width = 40, 30
    pixels = (numpy.arange(height * width * 3) * 7 % 251).astype(numpy.uint8).reshape(height, width, 3)
    wanted = classifier.probabilities([b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes()])
    cases = {
        "an array": pixels,
        "part of a larger one": numpy.pad(pixels, ((2, 3), (1, 4), (0, 0)))[2:-3, 1:-4],
        "a transposed one": numpy.ascontiguousarray(pixels.transpose(1, 0, 2)).transpose(1, 0, 2),
        "a mirrored one": numpy.ascontiguousarray(pixels[::-1, ::-1])[::-1, ::-1],
        "one of four channels": numpy.dstack([pixels, numpy.full((height, width), 9, numpy.uint8)]),
    }
    readonly = pixels.copy()
    readonly.flags.writeable = False
    cases["one that is read only"] = readonly
    for name, case in cases.items():
        check((classifier.probabilities([case]) == wanted).all(), f"{name} gets another answer than the file with its pixels")
    check((classifier.probabilities([pixels[:, :, ::-1].copy()], order="bgr") == wanted).all(), "the order of channels")
    held = _images.prepare(cases["part of a larger one"])
    base = cases["part of a larger one"].__array_interface__["data"][0]
    check(held.pixels.data == base, "the pixels were copied")
    raises(convoy.UsageError, "logits_of_tensor", classifier.classify, pixels.astype(numpy.float32))
    raises(convoy.UsageError, "a list", classifier.logits, pixels)
    check(len(classifier.logits(pixels[None])) == 1 and len(classifier.logits(pixels[:2, :, :, None])) == 2, "images in one array")
    raises(convoy.UsageError, "(3, 40, 30)", classifier.classify, pixels.transpose(2, 0, 1))
    raises(convoy.UsageError, "cmyk", classifier.classify, pixels, order="cmyk")
    tensor = numpy.random.default_rng(0).standard_normal((2, 3, 32, 32), dtype=numpy.float32)
    logits = classifier.logits_of_tensor(tensor)
    other = classifier.logits_of_tensor(numpy.ascontiguousarray(tensor.transpose(0, 2, 3, 1)))
    check(logits.shape == (2, classifier.num_classes) and (logits == other).all(), "tensors in both orders")
    raises(convoy.UsageError, "contiguous", classifier.logits_of_tensor, tensor[:, :, ::-1])
    if module("PIL"):
        from PIL import Image

        check((classifier.probabilities([Image.fromarray(pixels)]) == wanted).all(), "Pillow's image")
        grey = Image.fromarray(pixels).convert("L")
        check(
            (classifier.probabilities([grey]) == classifier.probabilities([numpy.asarray(grey)])).all(), "Pillow's grey image"
        )
    torch = module("torch")
    if torch:
        check((classifier.probabilities([torch.from_numpy(pixels)]) == wanted).all(), "a DLPack tensor")
        check((classifier.logits_of_tensor(torch.from_numpy(tensor)) == logits).all(), "a DLPack tensor of floats")
        raises(convoy.UsageError, "contiguous", classifier.classify, torch.from_numpy(pixels).permute(1, 0, 2))
        beside(torch, classifier, pixels, wanted)


def beside(torch, classifier, pixels, wanted):
    """PyTorch computes in the same process, by turns and at once: two OpenMP runtimes, and neither changes the other's numbers."""
    layer = torch.nn.Conv2d(16, 16, 3)
    images = torch.ones(4, 16, 40, 40)
    with torch.no_grad():
        expected = layer(images)
        stop = threading.Event()
        wrong = []

        def compute():
            while not stop.is_set():
                if not torch.equal(layer(images), expected):
                    wrong.append("torch")

        other = threading.Thread(target=compute)
        other.start()
        for _ in range(20):
            if not (classifier.probabilities([pixels]) == wanted).all():
                wrong.append("convoy")
        stop.set()
        other.join()
    check(not wrong, f"side by side, these were wrong: {wrong}")


def threads(classifier, first):
    """Contexts in threads at once; the interpreter runs meanwhile."""
    contexts = [classifier.context() for _ in range(3)]
    wrong, count = [], [0]

    def work(context):
        for _ in range(5):
            if context.classify(pictures[0]) != first:
                wrong.append(context)
            count[0] += 1

    workers = [threading.Thread(target=work, args=(context,)) for context in contexts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for context in contexts:
        context.close()
    check(not wrong and count[0] == 15, "contexts in threads")


def layouts():
    """ctypes' structs are as large as C's, where a compiler can say it."""
    pairs = {
        "cvy_classifier_options": _library.ClassifierOptions,
        "cvy_pixels": _library.Pixels,
        "cvy_image": _library.Image,
        "cvy_outputs": _library.Outputs,
        "cvy_input_tensor": _library.InputTensor,
        "cvy_answer": _library.Answer,
        "cvy_detected_object": _library.DetectedObject,
        "cvy_detect_answer": _library.DetectAnswer,
        "cvy_detect_options": _library.DetectOptions,
        "cvy_measures": _library.Measures,
        "cvy_train_epoch": _library.TrainEpoch,
        "cvy_train_events": _library.TrainEvents,
        "cvy_train_result": _library.TrainResult,
    }
    include = os.environ.get("CONVOY_INCLUDE")
    if not include:
        print("part skipped: CONVOY_INCLUDE names no headers")
        return
    lines = ["#include <convoy/convoy.h>", "#include <stdio.h>", "int main(void) {"]
    for name, struct in pairs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field in struct._fields_:
            lines.append(f'printf("{name}.{field[0]} %zu\\n", (size_t)&((struct {name} *)0)->{field[0]});')
    lines += ["return 0; }"]
    with open("layout.c", "w") as file:
        file.write("\n".join(lines))
    subprocess.run(["cc", "layout.c", "-I", include, "-o", "layout"], check=True)
    said = dict(line.split() for line in subprocess.check_output(["./layout"], text=True).splitlines())
    for name, struct in pairs.items():
        check(int(said[name]) == ctypes.sizeof(struct), f"the size of {name}")
        for field in struct._fields_:
            check(int(said[f"{name}.{field[0]}"]) == getattr(struct, field[0]).offset, f"where {name}.{field[0]} is")


layouts()
weights = trained()
classifier, first = answered(weights)
threads(classifier, first)
arrays(classifier)
classifier.close()
print(f"{support.checks} checks passed, convoy {convoy.__version__} with Python {sys.version.split()[0]}")
