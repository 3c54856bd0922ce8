#!/usr/bin/env python3
"""Convoy beside PyTorch on one GPU, alternating in one run (scripts/gpu-check peer; doc/benchmarks.md).

PyTorch gets what is good for it: channels-last, autocast (fp16 with a loss scaler, bf16) or TF32, cudnn.benchmark, a
fused optimizer, its input in GPU memory in the type it likes, and in turn eager, torch.compile, torch.compile in mode
max-autotune, and eager with the whole step in one CUDA graph. Its best variant counts. Each variant is a process of its
own with a time limit, so that none disturbs another and each has a peak memory of its own. Convoy runs as
`convoy bench`: bytes from the host's memory, new ones each step.

    gpu_peer.py --convoy build/convoy --json F --table F [--part train|infer|curves] [--device D] [--seconds S]
                [--quick]

Written for the python3 that has PyTorch; only gpu_torch.py, which it starts, imports it.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

VARIANTS = ("eager", "graph", "compile", "compile-max")
LATE = ("compile-max",)  # may take minutes to compile: after all cases have had the others
LIMIT, LATE_LIMIT = 120, 200  # seconds of one process
FOLDER = os.path.dirname(os.path.abspath(__file__))
FIELDS = ("images_per_second", "p50", "gpu_memory_mib")


# ---- the comparison ----

CURVE_RATE, CURVE_CROP, CURVE_ARCH = 0.02, 0.35, "resnet50"
EXACT = "fp32"
NOT_REACHED = "not reached"


class Sampler(threading.Thread):
    """The most GPU memory in use while it runs, as nvidia-smi tells it (MiB; None without it)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most = self.process = None
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "100"]
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return
        self.start()

    def run(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.most = max(self.most or 0, int(line))

    def stop(self):
        if self.process:
            self.process.kill()
            self.join()
            self.process.wait()
        return self.most


def answer(text):
    """The JSON in what a program printed: all of it, or (where a compiler chats) its last line that is an object."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def shown(value):
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "/")


class Comparison:
    def __init__(self, settings):
        self.settings = settings
        self.deadline = time.monotonic() + settings.seconds
        self.rows, self.missed, self.failed = [], 0, 0

    def left(self):
        return self.deadline - time.monotonic()

    def save(self, complete):
        record = {"step": "peer", "part": self.settings.part, "device": self.settings.device,
                  "quick": self.settings.quick, "complete": complete, "rows": self.rows}
        with open(self.settings.json + ".new", "w") as file:
            json.dump(record, file, indent=1)
        os.replace(self.settings.json + ".new", self.settings.json)

    def write(self, cells):
        text = "| " + " | ".join(shown(cell) for cell in cells) + " |"
        with open(self.settings.table, "a") as file:
            file.write(text + "\n")
        print(text, flush=True)

    def head(self, columns):
        self.write(columns)
        self.write(["---"] * len(columns))

    def row(self, record, cells):
        self.rows.append(record)
        self.write(cells)
        self.save(False)

    def run(self, command, limit):
        """(the JSON it printed or None, a sentence, the most GPU memory), within the limit and the time that is left."""
        late = self.left() < limit
        limit = min(limit, self.left())
        if limit < 3:
            self.missed += 1
            return None, NOT_REACHED, None
        sampler = Sampler() if self.settings.device != "cpu" else None
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.missed += late
            return None, NOT_REACHED if late else f"stopped after {limit:.0f} seconds", None
        finally:
            if process.poll() is None:  # a compiler's helpers end with it
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            memory = sampler.stop() if sampler else None
        if process.returncode != 0:
            words = (err.strip() or out.strip()).splitlines() or [f"exit code {process.returncode}"]
            return None, words[-1][:300], None
        return answer(out), "", memory

    def peer(self, case, variant):
        command = [sys.executable, os.path.join(FOLDER, "gpu_torch.py"), "measure", "--variant", variant, "--seconds",
                   str(self.settings.case_seconds), "--device", self.settings.device]
        return self.run(command + self.case_options(case), LATE_LIMIT if variant in LATE else LIMIT)

    def convoy(self, case):
        command = [self.settings.convoy, "-q", "bench", case["mode"], "--format", "json", "--device",
                   self.settings.device]
        if self.settings.quick:
            command += ["--warmup", "1", "--iterations", "2"]
        return self.run(command + self.case_options(case)[2:], LIMIT)

    def case_options(self, case):
        return ["--mode", case["mode"], "--arch", case["arch"], "--precision", case["precision"], "--batch-size",
                str(case["batch_size"]), "--image-size", str(self.settings.image_size)]

    def measure(self, case, side):
        result, problem, memory = self.convoy(case) if side == "convoy" else self.peer(case, side)
        if result is None:
            if side == "convoy" and problem != NOT_REACHED:
                self.failed += 1
            self.row({**case, "side": side, "failed": problem}, [name_of(case), side, problem] + [None] * 4)
            return None
        result = result[0] if isinstance(result, list) else result
        row = {**case, "side": side, "gpu_memory_mib": memory, **result}
        latency = row.get("latency_ms") or {}
        self.row(row, [name_of(case), side, row["images_per_second"], latency.get("p50"), latency.get("p99"),
                       row.get("peak_memory_mib") if side != "convoy" else None, memory])
        return row

    def case(self, case, rounds, rows, variants):
        """Each variant once. If the best of all so far is one of them: it and Convoy in turn, and their ratio."""
        for variant in variants:
            rows[variant] = [self.measure(case, variant)]
        peers = [(medians(rows[v])["images_per_second"], v) for v in rows if v != "convoy" and any(rows[v])]
        if not peers or not any(rows["convoy"]) or max(peers)[1] not in variants:
            return
        best, order = max(peers)[1], random.Random(0)
        for _ in range(rounds - 1):
            turn = ["convoy", best]
            order.shuffle(turn)
            for side in turn:
                rows[side].append(self.measure(case, side))
        ours, theirs = medians(rows["convoy"]), medians(rows[best])
        ratios = {"speed_ratio": ours["images_per_second"] / theirs["images_per_second"],
                  "latency_ratio": None, "memory_ratio": None}
        if ours["p50"] and any(rows.get("eager", [])):
            ratios["latency_ratio"] = ours["p50"] / medians(rows["eager"])["p50"]
        if ours["gpu_memory_mib"] and theirs["gpu_memory_mib"]:
            ratios["memory_ratio"] = ours["gpu_memory_mib"] / theirs["gpu_memory_mib"]
        self.row({**case, "side": "ratio", "best": best, "rounds": rounds, **ratios},
                 [name_of(case), f"convoy / {best}, medians", ratios["speed_ratio"],
                  f"{ratios['latency_ratio']:.3f} of eager's" if ratios["latency_ratio"] else None, None, None,
                  ratios["memory_ratio"]])

    # ---- parts ----

    def speed(self, mode):
        self.head(["case", "side", "images/s", "p50 ms", "p99 ms", "its own peak MiB", "GPU MiB"])
        started = []
        for case, rounds in cases_of(self.settings, mode):
            started.append((case, rounds, {"convoy": [self.measure(case, "convoy")]}))
            self.case(*started[-1], [v for v in self.settings.variants if v not in LATE])
        for case, rounds, rows in started:
            self.case(case, rounds, rows, [v for v in self.settings.variants if v in LATE])
            self.failed += not self.missed and not any(any(rows[v]) for v in self.settings.variants)

    def convoy_curve(self, folder, precision, seed, epochs, steps, batch):
        name = os.path.join(folder, f"convoy-{precision}-{seed}")
        command = [self.settings.convoy, "-q", "train", os.path.join(folder, "data"), "--arch", CURVE_ARCH,
                   "--image-size", str(self.settings.image_size), "--batch-size", str(batch), "--lr", str(CURVE_RATE),
                   "--lr-schedule", "step", "--warmup", "0", "--min-crop-area", str(CURVE_CROP), "--training-only",
                   "--no-checkpoints", "--epochs", str(epochs), "--seed", str(seed), "--precision", precision,
                   "--device", self.settings.device, "--workspace", name, "--log-every-step", name + ".csv"]
        done, problem, _ = self.run(["sh", "-c", '"$@" >/dev/null && echo {}', "sh", *command], LIMIT)
        if done is None:
            return None, problem
        with open(name + ".csv") as file:
            return [float(line.split(",")[2]) for line in list(file)[1:steps + 1]], ""

    def torch_curve(self, folder, precision, seed, steps, batch):
        done, problem, _ = self.run(
            [sys.executable, os.path.join(FOLDER, "gpu_torch.py"), "curve", "--data", os.path.join(folder, "data"),
             "--arch", CURVE_ARCH, "--image-size", str(self.settings.image_size), "--batch-size", str(batch),
             "--precision", precision, "--seed", str(seed), "--steps", str(steps), "--device", self.settings.device,
             "--rate", str(CURVE_RATE), "--crop", str(CURVE_CROP)], LIMIT)
        return (None, problem) if done is None else (done["losses"], "")

    def make_images(self, folder, per_class):
        done, problem, _ = self.run(
            ["sh", "-c", '"$@" >/dev/null && echo {}', "sh", self.settings.convoy, "-q", "dataset", "shapes",
             os.path.join(folder, "data"), "--train-per-class", str(per_class), "--val-per-class", "1",
             "--image-size", str(max(self.settings.image_size, 40))], LIMIT)
        if done is None:
            sys.exit(f"the images cannot be made: {problem}")

    def curves(self):
        """Distances between loss curves: the mean of |a - b| over the second half of the steps."""
        steps, batch, per_class = (6, 5, 2) if self.settings.quick else (200, 64, 200)
        epochs = -(-steps // (10 * per_class // batch))
        narrow = ["bf16"] if self.settings.device == "cpu" else ["fp16", "bf16", "tf32"]
        jobs = [("torch", EXACT, 0), ("torch", EXACT, 1), ("convoy", EXACT, 0)]
        jobs += [(side, precision, 0) for side in ("convoy", "torch") for precision in narrow]
        found, seeds = {}, None
        self.head(["curve", "mean difference", "two seeds of PyTorch", "share"])
        with tempfile.TemporaryDirectory() as folder:
            self.make_images(folder, per_class)
            for job in jobs:
                side, precision, seed = job
                name = f"{side} {precision} seed {seed}"
                if side == "torch":
                    losses, problem = self.torch_curve(folder, precision, seed, steps, batch)
                else:
                    losses, problem = self.convoy_curve(folder, precision, seed, epochs, steps, batch)
                record = {"side": side, "precision": precision, "seed": seed, "losses": losses}
                if losses is None:
                    self.failed += side == "convoy" and problem != NOT_REACHED
                    self.row({**record, "failed": problem}, [name, problem, None, None])
                    continue
                found[job] = losses
                base = found.get((side, EXACT, 0))
                value = None if base in (None, losses) else distance(base, losses, steps)
                if job == ("torch", EXACT, 1):
                    seeds = value
                self.row({**record, "mean_difference": value, "seeds": seeds},
                         [f"{name}" + (f" against {EXACT} seed 0" if value is not None else ""), value, seeds,
                          value / seeds if value is not None and seeds else None])

    def everything(self):
        open(self.settings.table, "w").close()
        if self.settings.part == "curves":
            self.curves()
        elif self.settings.part:
            self.speed(self.settings.part)
        else:
            self.speed("headline")
        self.save(self.missed == 0)
        if self.missed:
            print(f"the time is up: {self.missed} of the rows were not reached")
        print(self.settings.json)
        return 1 if self.failed else 0


def distance(a, b, steps):
    return statistics.fmean(abs(x - y) for x, y in zip(a[steps // 2:steps], b[steps // 2:steps]))


def medians(rows):
    """Of the rows that are there, field by field."""
    there = [{**row, "p50": (row.get("latency_ms") or {}).get("p50")} for row in rows if row]
    result = {}
    for field in FIELDS:
        values = [row[field] for row in there if row.get(field) is not None]
        result[field] = statistics.median(values) if values else None
    return result


def name_of(case):
    return f"{case['arch']} {case['mode']} {case['precision']}, batch {case['batch_size']}"


def cases_of(settings, mode):
    """[(case, rounds)], the most important first."""
    def case(mode, arch, precision, batch, rounds=1):
        return {"mode": mode, "arch": arch, "precision": precision, "batch_size": batch}, rounds

    if settings.quick:
        precision = "fp32" if settings.device == "cpu" else "fp16"
        return [case("train", "resnet50", precision, 2, 2), case("infer", "resnet50", precision, 1, 1)]
    headline = [case("train", "resnet50", "fp16", 256, 3), case("infer", "resnet50", "fp16", 1, 3),
                case("infer", "resnet50", "fp16", 128, 3)]
    if mode == "headline":
        return headline
    if mode == "infer":
        return [case("infer", "resnet50", "fp16", batch) for batch in (1, 128, 2, 4, 8, 16, 32, 64, 256)]
    return [case("train", "resnext101-32x4d", "fp16", 128, 2), case("train", "se-resnext101-32x4d", "fp16", 128, 2),
            case("train", "resnet50", "tf32", 256, 2), case("train", "resnet50", "bf16", 256, 2),
            case("train", "resnext101-32x4d", "bf16", 128), case("train", "se-resnext101-32x4d", "bf16", 128)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--part", choices=("train", "infer", "curves"), help="default: the headline cases")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--seconds", type=float, default=460, help="of everything")
    parser.add_argument("--case-seconds", type=float, default=3, help="of PyTorch's measuring in each case")
    parser.add_argument("--quick", action="store_true", help="tiny settings")
    settings = parser.parse_args()
    settings.image_size = settings.image_size or (32 if settings.quick else 64 if settings.part == "curves" else 224)
    settings.variants = ["eager"] if settings.device == "cpu" else settings.variants.split(",")
    if settings.quick:
        settings.case_seconds = 0
    return settings


if __name__ == "__main__":
    sys.exit(Comparison(parse()).everything())
