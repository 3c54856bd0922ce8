"""One peer, measured in a process of its own: trains or runs a network and prints one line of JSON.

    peer.py PEER --mode train|infer --arch A --batch-size N --image-size S --threads T --precision P --seconds S
            [--weights FILE] [--check FILE] [--serve]

Peers: torch (eager, channels-last: PyTorch's fastest layout on CPUs), torch-compile, and for inference torch-cast (eager,
the weights themselves in bf16, no autocast), torch-frozen (the same, compiled with the weights as constants),
onnxruntime, openvino. All take
uint8 images (N, H, W, 3), change them from step to step, and read the loss or the probabilities of every step. The
conversion to floats is part of the graph where the runtime can take it in. --weights: a .pth for PyTorch, an .onnx for
the others, which for int8 is one of a quantised network. --check writes the logits of a fixed batch, so that somebody can see that all compute the same.

--serve: says {"ready": true} when the network is there (and compiled), then for each line of its input, a number of
seconds, measures so long and prints the line of JSON.

ssd320 (torch and torch-compile) is that of torch_detector.py, its targets computed before the clock starts: a part of
Convoy's step that PyTorch's does not have.
"""
import argparse
import json
import os
import sys
import time

import numpy as np

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
WARM_UP = 2


def images(settings, seed):
    shape = (settings.batch_size, settings.image_size, settings.image_size, 3)
    return np.random.RandomState(seed).randint(0, 256, shape, dtype=np.uint8)


# ---- PyTorch ----

def build_torch(settings):
    import torchvision

    if hasattr(torchvision.models, settings.arch.replace("-", "_")):
        return getattr(torchvision.models, settings.arch.replace("-", "_"))()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/parity"))
    import networks

    return networks.build(settings.arch)


def open_torch(settings):
    import torch

    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    model = build_torch(settings)
    if settings.weights:
        model.load_state_dict(torch.load(settings.weights, map_location="cpu"))
    model = model.to(memory_format=torch.channels_last).train(settings.mode == "train")
    network = torch.compile(model) if settings.peer == "torch-compile" else model
    mean = torch.tensor(MEAN).view(1, 3, 1, 1)
    scale = 1 / torch.tensor(STD).view(1, 3, 1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def forward(pixels):
        # A channels-last view of N, H, W, C bytes: the result is channels-last too.
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().sub_(mean).mul_(scale)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.precision == "bf16"):
            return network(x).float()

    def train(pixels, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(forward(pixels), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        return loss.item()

    def infer(pixels, _):
        with torch.no_grad():
            return forward(pixels).softmax(1).numpy()

    def logits(pixels):
        with torch.no_grad():
            return forward(pixels).numpy()

    return train if settings.mode == "train" else infer, logits, torch.__version__


def open_torch_cast(settings):
    """Inference with weights in bf16; --peer torch-frozen: compiled, batch norms folded, weights in the kernels' layout."""
    import torch

    torch.set_num_threads(settings.threads)
    model = build_torch(settings)
    if settings.weights:
        model.load_state_dict(torch.load(settings.weights, map_location="cpu"))
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    network = model.eval().to(memory_format=torch.channels_last).to(dtype)
    if settings.peer == "torch-frozen":
        import torch._inductor.config

        torch._inductor.config.freezing = True
        network = torch.compile(network)
    mean = torch.tensor(MEAN).view(1, 3, 1, 1)
    scale = 1 / torch.tensor(STD).view(1, 3, 1, 1)

    def logits(pixels):
        with torch.no_grad():
            x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().sub_(mean).mul_(scale)
            return network(x.to(dtype)).float().numpy()

    return lambda pixels, _: softmax(logits(pixels)), logits, torch.__version__


# ---- PyTorch's SSD320 ----

DETECTOR_CLASSES = 90


def random_targets(settings, anchors, seed):
    """Of eight boxes on each image."""
    dice = np.random.RandomState(seed)
    side = dice.uniform(0.05, 0.5, (settings.batch_size, 8, 2))
    low = dice.uniform(0, 1 - side)
    boxes = np.concatenate([low, low + side], 2).astype(np.float32)
    return anchors.targets(boxes, dice.randint(1, DETECTOR_CLASSES + 1, (settings.batch_size, 8)))


def open_torch_detector(settings):
    import torch
    import torch_detector

    torch.set_num_threads(settings.threads)
    model = torch_detector.make_model(DETECTOR_CLASSES, 0)
    if settings.weights:
        model.load_state_dict(torch.load(settings.weights, map_location="cpu"))
    model.train(settings.mode == "train")
    network = torch.compile(model) if settings.peer == "torch-compile" else model
    anchors = torch_detector.Boxes(settings.image_size)
    targets = [random_targets(settings, anchors, seed) for seed in range(4)] if settings.mode == "train" else []
    optimizer = torch_detector.optimizer_of(model, 1e-3)
    steps = 0

    def forward(pixels):
        return torch_detector.predict(network, torch.from_numpy(pixels).permute(0, 3, 1, 2).float(), settings.precision)

    def train(pixels, _):
        nonlocal steps
        steps += 1
        optimizer.zero_grad(set_to_none=True)
        loss = torch_detector.losses(*forward(pixels), targets[steps % len(targets)])
        loss.backward()
        optimizer.step()
        return loss.item()

    def infer(pixels, _):
        with torch.no_grad():
            return anchors.found(*forward(pixels))

    def logits(pixels):
        with torch.no_grad():
            return forward(pixels)[1].numpy()

    return train if settings.mode == "train" else infer, logits, torch.__version__


# ---- runtimes that read ONNX ----

def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def with_bytes(path):
    """The model of a file that begins with the conversion from uint8 (N, H, W, 3)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(path)
    graph = model.graph
    height, width = (graph.input[0].type.tensor_type.shape.dim[i].dim_value for i in (2, 3))
    name = graph.input[0].name
    graph.initializer.extend([numpy_helper.from_array(np.array(MEAN, np.float32), "pixel_mean"),
                              numpy_helper.from_array(np.array(STD, np.float32), "pixel_std")])
    front = [helper.make_node("Cast", ["pixels"], ["pixel_values"], to=TensorProto.FLOAT),
             helper.make_node("Sub", ["pixel_values", "pixel_mean"], ["pixel_centred"]),
             helper.make_node("Div", ["pixel_centred", "pixel_std"], ["pixel_scaled"]),
             helper.make_node("Transpose", ["pixel_scaled"], [name], perm=[0, 3, 1, 2])]
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(front + nodes)
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", height, width, 3]))
    return model.SerializeToString()


def open_onnxruntime(settings):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.force_spinning_stop", "1")  # between turns others have the cores
    session = onnxruntime.InferenceSession(with_bytes(settings.weights), options, providers=["CPUExecutionProvider"])

    def logits(pixels):
        return session.run(["logits"], {"pixels": pixels})[0]

    if settings.arch == "ssd320":
        return lambda pixels, _: session.run(["boxes", "scores"], {"pixels": pixels}), logits, onnxruntime.__version__
    return lambda pixels, _: softmax(logits(pixels)), logits, onnxruntime.__version__


def open_openvino(settings):
    import openvino
    from openvino.preprocess import ColorFormat, PrePostProcessor

    core = openvino.Core()
    model = core.read_model(settings.weights)
    model.reshape([settings.batch_size, 3, settings.image_size, settings.image_size])
    steps = PrePostProcessor(model)
    steps.input().tensor().set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC"))
    steps.input().tensor().set_color_format(ColorFormat.RGB)
    steps.input().preprocess().convert_element_type(openvino.Type.f32).mean(list(MEAN)).scale(list(STD))
    steps.input().model().set_layout(openvino.Layout("NCHW"))
    properties = {"INFERENCE_NUM_THREADS": settings.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    if settings.precision != "int8":  # there it chooses what is left in floats
        properties["INFERENCE_PRECISION_HINT"] = "bf16" if settings.precision == "bf16" else "f32"
    compiled = core.compile_model(steps.build(), "CPU", properties)
    request = compiled.create_infer_request()

    def logits(pixels):
        request.infer([pixels], share_inputs=True)
        return request.get_output_tensor(0).data

    if settings.arch == "ssd320":
        return lambda pixels, _: request.infer([pixels], share_inputs=True), logits, openvino.__version__
    return lambda pixels, _: softmax(logits(pixels).astype(np.float32)), logits, openvino.__version__


# ---- the measurement ----

def measure(settings, step, batches, version, seconds):
    for i in range(WARM_UP):
        step(*batches[i])
    begin, times = time.monotonic(), []
    while len(times) < 3 or time.monotonic() - begin < seconds:
        start = time.monotonic()
        step(*batches[len(times) % len(batches)])
        times.append(time.monotonic() - start)
    print(json.dumps({"images_per_second": settings.batch_size * len(times) / sum(times), "iterations": len(times),
                      "latency_ms": 1000 * sorted(times)[len(times) // 2], "version": version}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("torch", "torch-compile", "torch-cast", "torch-frozen", "onnxruntime", "openvino"))
    parser.add_argument("--mode", choices=("train", "infer"), required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), required=True)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--weights")
    parser.add_argument("--check")
    parser.add_argument("--serve", action="store_true")
    settings = parser.parse_args()
    torch_opener = open_torch_detector if settings.arch == "ssd320" else open_torch
    opener = {"onnxruntime": open_onnxruntime, "openvino": open_openvino, "torch-cast": open_torch_cast,
              "torch-frozen": open_torch_cast}.get(settings.peer, torch_opener)
    step, logits, version = opener(settings)
    if settings.check:
        np.save(settings.check, np.asarray(logits(images(settings, 0)), np.float32))
    batches = [(images(settings, i), np.random.RandomState(i).randint(0, 1000, settings.batch_size)) for i in range(4)]
    if not settings.serve:
        measure(settings, step, batches, version, settings.seconds)
        return
    if settings.peer in ("torch-compile", "torch-frozen"):
        step(*batches[0])
    print(json.dumps({"ready": True, "version": version}), flush=True)
    for line in sys.stdin:
        measure(settings, step, batches, version, float(line))


if __name__ == "__main__":
    main()
