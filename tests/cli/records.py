"""Reads the records of a run without any of Convoy: records.py RUNDIR [--steps N] [--plain RUNDIR].

The event file is read by a parser of its own (TFRecord frames with CRC-32C from the polynomial, protobuf fields by hand),
the report as JSON lines, validation.json and metrics.csv with the standard library; everything must agree. --plain: another
run that must hold the same scalars at the same steps (times and rates aside)."""
import argparse
import csv
import glob
import json
import math
import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(data):
    at = 0
    while at < len(data):
        (size,), (check,) = struct.unpack("<Q", data[at : at + 8]), struct.unpack("<I", data[at + 8 : at + 12])
        assert check == masked(data[at : at + 8])
        payload = data[at + 12 : at + 12 + size]
        (check,) = struct.unpack("<I", data[at + 12 + size : at + 16 + size])
        assert check == masked(payload)
        yield payload
        at += 16 + size


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            (value,) = struct.unpack({1: "<d", 5: "<f"}[kind], data[at : at + size])
            at += size
        yield key >> 3, value


def read_events(folder):
    """{tag: [(step, value)]} of the one event file."""
    (path,) = glob.glob(f"{folder}/events.out.tfevents.*")
    records = list(frames(open(path, "rb").read()))
    assert dict(fields(records[0]))[3] == b"brain.Event:2"
    scalars, last = {}, 0.0
    for record in records[1:]:
        event = dict(fields(record))
        assert event[1] >= last > -1, "wall times fall"
        last = event[1]
        for number, value in fields(event[5]):
            assert number == 1
            value = dict(fields(value))
            scalars.setdefault(value[1].decode(), []).append((event[2], value[2]))
    for tag, points in scalars.items():
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps)), f"{tag}: steps {steps}"
    return scalars


def read_report(folder):
    lines = open(f"{folder}/experiment_raport.json").read().splitlines()
    assert all(line.startswith("DLLL {") for line in lines)
    return [json.loads(line[5:]) for line in lines]


LOG = ["timestamp", "datetime", "elapsedtime", "type", "step", "data"]
METADATA = ["timestamp", "elapsedtime", "datetime", "type", "metric", "metadata"]
TRAIN0 = ["train.loss", "train.compute_ips", "train.total_ips", "train.lr", "train.grad_scale"]
TRAIN1 = ["train.data_time", "train.compute_time"]
VAL0 = ["val.top1", "val.top5", "val.loss", "val.compute_ips", "val.total_ips", "val.compute_latency"]
VAL1 = ["val.data_time", "val.compute_latency_at100", "val.compute_latency_at99", "val.compute_latency_at95"]


def check_report(records, steps, rows):
    for record in records:
        assert list(record) == (LOG if record["type"] == "LOG" else METADATA)
        assert all(isinstance(record[key], str) for key in ("timestamp", "datetime", "elapsedtime"))
    parameters = [record["data"] for record in records if record.get("step") == "PARAMETER"]
    assert parameters[0]["arch"] == "resnet18" and parameters[0]["batch_size"] == 10 and parameters[0]["resume"] is None
    assert parameters[1]["model.num_classes"] == 10 and parameters[1]["model.conv_init"] == "fan_in"
    assert parameters[2]["data.steps_per_epoch"] == steps
    metrics = [record["metric"] for record in records if record["type"] == "METADATA"]
    assert metrics[:7] == TRAIN0[:3] + TRAIN1 + TRAIN0[3:] and set(VAL0 + VAL1) <= set(metrics)
    logs = [record for record in records if record["type"] == "LOG" and record["step"] != "PARAMETER"]
    windows = [(tuple(r["step"]), list(r["data"])) for r in logs if len(r["step"]) == 2]
    expected = [(epoch, step) for epoch in range(len(rows)) for step in range(3, steps + 1, 3)]
    assert [w[0] for w in windows[0::2]] == expected == [w[0] for w in windows[1::2]], windows
    assert all(w[1] == TRAIN0 for w in windows[0::2]) and all(w[1] == TRAIN1 for w in windows[1::2])
    batches = [(tuple(r["step"]), list(r["data"])) for r in logs if len(r["step"]) == 3]
    assert batches and all(b[1] == VAL0 for b in batches[0::2]) and all(b[1] == VAL1 for b in batches[1::2])
    assert all(b[0][1] == steps for b in batches)
    epochs = [r["data"] for r in logs if len(r["step"]) == 1]
    assert [r["step"] for r in logs if len(r["step"]) == 1] == [[i] for i in range(len(rows))]
    for epoch, row in zip(epochs, rows):
        assert set(TRAIN0 + TRAIN1 + VAL0 + VAL1) <= set(epoch)
        assert all(math.isclose(epoch[key], float(row[key]), rel_tol=1e-8) for key in row if key != "epoch")
        assert epoch["val.compute_latency_at95"] <= epoch["val.compute_latency_at99"] <= epoch["val.compute_latency_at100"]
        assert epoch["train.grad_scale"] == 1
    assert logs[-1]["step"] == [] and sum(r["step"] == [] for r in logs) == 1
    summary = logs[-1]["data"]
    assert summary["train.loss"] == min(e["train.loss"] for e in epochs)  # a minimum, not the reference's maximum
    assert summary["val.loss"] == min(e["val.loss"] for e in epochs)
    assert summary["val.top1"] == max(e["val.top1"] for e in epochs)
    assert summary["train.lr"] == epochs[-1]["train.lr"]
    mean = sum(e["train.total_ips"] for e in epochs) / len(epochs)
    assert math.isclose(summary["train.total_ips"], mean, rel_tol=1e-9)


def check_validation(folder, rows):
    v = json.load(open(f"{folder}/validation.json"))
    images = sum(c["images"] for c in v["classes"])
    assert v["format"] == 1 and v["epoch"] == len(rows) - 1 and images == v["images"]
    assert math.isclose(v["top1"], float(rows[-1]["val.top1"]), rel_tol=1e-8)
    assert math.isclose(v["top1"], 100 * sum(c["top1_hits"] for c in v["classes"]) / images)
    assert math.isclose(v["topk"], 100 * sum(c["topk_hits"] for c in v["classes"]) / images)
    for i, c in enumerate(v["classes"]):
        assert sum(n for label, _, n in v["confusion"] if label == i) == c["images"]
        assert sum(n for _, said, n in v["confusion"] if said == i) == c["predicted"]
        assert sum(n for label, said, n in v["confusion"] if label == said == i) == c["top1_hits"]
    losses = [w["loss"] for w in v["worst"]]
    assert losses == sorted(losses, reverse=True) and len(losses) > 0
    for w in v["worst"]:
        assert w["label"] != w["predicted"] and w["label_probability"] <= w["probability"]
        assert math.isclose(w["label_probability"], math.exp(-w["loss"]), rel_tol=1e-9)
        assert v["classes"][w["label"]]["name"] == w["file"].split("/")[-2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--plain")
    options = parser.parse_args()
    rows = list(csv.DictReader(open(f"{options.folder}/metrics.csv")))
    scalars = read_events(options.folder)
    check_report(read_report(options.folder), options.steps, rows)
    check_validation(options.folder, rows)
    ends = [(i + 1) * options.steps for i in range(len(rows))]
    for tag, key in ("val/loss", "val.loss"), ("val/top1", "val.top1"), ("train/epoch_loss", "train.loss"):
        assert [step for step, _ in scalars[tag]] == ends
        for (_, value), row in zip(scalars[tag], rows):
            assert math.isclose(value, float(row[key]), rel_tol=1e-6)  # floats
    assert [value for _, value in scalars["epoch"]] == list(range(len(rows)))
    windows = [e * options.steps + s for e in range(len(rows)) for s in range(1, options.steps + 1)
               if s % 3 == 0 or s == options.steps]
    for tag in "train/loss", "train/lr", "train/images_per_second", "train/data_share":
        assert [step for step, _ in scalars[tag]] == windows, (tag, scalars[tag])
    if options.plain:
        plain = read_events(options.plain)
        assert set(plain) == set(scalars)
        for tag in "train/loss", "train/lr", "train/epoch_loss", "val/loss", "val/top1", "val/top5", "epoch":
            assert plain[tag] == scalars[tag], tag
    print(f"{options.folder}: {sum(map(len, scalars.values()))} scalars")


main()
