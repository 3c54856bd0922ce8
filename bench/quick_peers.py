#!/usr/bin/env python3
"""What bench/peers.py measures, in minutes: for a machine that is there for a short time.

    bench/quick_peers.py --seconds 200 --json quick.json [--cases FILE] [--also NAME=PROGRAM]

The peers' processes stay (`peer.py --serve`): each opens its network once, all of them before the clock of the first case
starts, and sleeps between its turns. Convoy has a process a turn, whose kernels were timed before. In each round of a case
every side has its turn, in an order drawn anew; reported are medians of the rounds. Cases are measured in the order of the
list until the time is over; a line of it is

    train|infer NETWORK fp32|bf16|int8 BATCH THREADS SIDE...

with THREADS a number or `all`: those that this process may use (taskset). Fewer are the first ones of these. Sides are
convoy, what --also names (another build of the program), either with /PRECISION behind it (the same network in that
precision), and the peers of peer.py. Every network has random weights (tests/tools/random_weights.c); for int8 it is
quantised by `convoy quantize` with the images of --images, and the peers read its ONNX file. ssd320 has 90 classes and images
of 320 pixels; what Convoy, ONNX Runtime and OpenVINO compute are boxes and scores of all anchors.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
DETECTOR, DETECTOR_SIZE, DETECTOR_CLASSES = "ssd320", 320, 90
CASES = """
infer resnet50 bf16 32 all convoy torch-frozen torch-cast openvino
infer resnet50 bf16 1 all convoy torch-frozen torch-cast openvino
train resnet50 bf16 64 all convoy torch-compile torch
infer resnet50 int8 32 all convoy convoy/bf16 onnxruntime openvino
infer resnet50 int8 1 all convoy convoy/bf16 onnxruntime openvino
infer resnext101-32x4d bf16 32 all convoy torch-cast openvino
infer resnext101-32x4d bf16 1 all convoy torch-cast openvino
infer resnet50 bf16 32 2 convoy torch-cast openvino
infer resnet50 bf16 1 2 convoy openvino
train resnet50 bf16 32 2 convoy torch
infer resnet50 fp32 32 all convoy onnxruntime openvino
infer resnet50 fp32 1 all convoy onnxruntime openvino
train resnext101-32x4d bf16 64 all convoy torch
infer resnext101-32x4d int8 32 all convoy onnxruntime openvino
infer resnext101-32x4d int8 1 all convoy onnxruntime openvino
infer resnet50 bf16 128 all convoy torch-cast openvino
train resnet50 fp32 64 all convoy torch
"""
Case = collections.namedtuple("Case", "mode arch precision batch threads sides")


def read_cases(text, threads):
    cases = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            many = threads if words[4] == "all" else int(words[4])
            cases.append(Case(words[0], words[1], words[2], int(words[3]), many, tuple(words[5:])))
    return cases


def known(case, programs):
    """Without the sides that are builds nobody named."""
    return case._replace(sides=tuple(side for side in case.sides
                                     if side.split("/")[0] in programs or not side.startswith("convoy")))


def name_of(case):
    return f"{case.arch} {case.mode} {case.precision}, batch {case.batch}, {case.threads} threads"


class Bench:
    def __init__(self, settings):
        self.settings = settings
        self.cpus = sorted(os.sched_getaffinity(0))
        self.begin = time.monotonic()
        self.programs = {"convoy": settings.convoy}
        for text in settings.also:
            name, path = text.split("=", 1)
            self.programs[name] = path
        self.workers, self.order = {}, random.Random(0)
        self.log = open(os.path.join(settings.folder, "quick_peers.log"), "a", buffering=1)
        self.say_lock = threading.Lock()

    def left(self):
        return self.settings.seconds - (time.monotonic() - self.begin)

    def say(self, text):
        with self.say_lock:
            print(f"[{time.monotonic() - self.begin:5.1f} s] {text}", flush=True)

    def path(self, arch, suffix):
        return os.path.join(self.settings.folder, arch + suffix)

    def image_size(self, arch):
        return DETECTOR_SIZE if arch == DETECTOR else self.settings.image_size

    def environment(self, side, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        if side not in ("onnxruntime", "openvino"):  # these have threads of their own, which bound ones would confine
            environment["OMP_PROC_BIND"] = "close"
        return environment

    def pin(self, threads):
        return ["taskset", "--cpu-list", ",".join(map(str, self.cpus[:threads]))]

    # ---- networks ----

    def run_quietly(self, *words):
        done = subprocess.run(words, stdout=self.log, stderr=self.log)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {' '.join(words)}")

    def make_network(self, arch, int8):
        s, start = self.settings, self.path(arch, ".safetensors")
        try:
            if not os.path.exists(self.path(arch, ".onnx")):
                classes = DETECTOR_CLASSES if arch == DETECTOR else 1000
                self.run_quietly(s.random_weights, arch, str(classes), str(self.image_size(arch)), "1", start)
                self.run_quietly(s.convoy, "-q", "convert", start, self.path(arch, ".pth"))
                self.run_quietly(s.convoy, "-q", "convert", start, self.path(arch, ".onnx"))
            if int8 and not os.path.exists(self.path(arch, "-int8.onnx")):
                self.run_quietly(s.convoy, "-q", "quantize", start, self.path(arch, "-int8.safetensors"), "--data", s.images,
                                 "--images", "8", "--batch-size", "8", "--max-drop", "100")
                self.run_quietly(s.convoy, "-q", "convert", self.path(arch, "-int8.safetensors"), self.path(arch, "-int8.onnx"))
        except RuntimeError as error:
            self.say(f"{arch}: {error}")

    # ---- peers ----

    def start_worker(self, case, side):
        s = self.settings
        suffix = ".pth" if side.startswith("torch") else ("-int8.onnx" if case.precision == "int8" else ".onnx")
        words = self.pin(case.threads) + [
            s.python, os.path.join(FOLDER, "peer.py"), side, "--serve", "--mode", case.mode, "--arch", case.arch,
            "--batch-size", str(case.batch), "--image-size", str(self.image_size(case.arch)), "--threads", str(case.threads),
            "--precision", case.precision, "--weights", self.path(case.arch, suffix)]
        begin = time.monotonic()
        worker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                  env=self.environment(side, case.threads), start_new_session=True)
        self.workers[case, side] = worker
        line = worker.stdout.readline()
        worker.ready = '"ready"' in line
        worker.seconds = time.monotonic() - begin
        if not worker.ready and not getattr(worker, "late", False):
            self.say(f"{side} of {name_of(case)} does not start")

    def start_workers(self, cases):
        wanted = [(case, side) for case in cases for side in case.sides if side.split("/")[0] not in self.programs]
        wanted.sort(key=lambda w: w[1] not in ("torch-compile", "torch-frozen"))  # those that take longest first
        pool = concurrent.futures.ThreadPoolExecutor(max(2, len(self.cpus) * 2 // 3))
        jobs = [pool.submit(self.start_worker, *w) for w in wanted]
        concurrent.futures.wait(jobs, timeout=min(self.settings.prepare, self.left()))
        for job in jobs:
            if not job.cancel() and job.done() and job.exception():
                raise job.exception()
        for (case, side), worker in self.workers.items():
            if not hasattr(worker, "ready"):
                worker.late = True
                self.stop(worker)
                self.say(f"{side} of {name_of(case)} was not ready in time")
        pool.shutdown()

    def stop(self, worker):
        try:
            os.killpg(worker.pid, signal.SIGKILL)  # a group of its own: its compilers are in it
        except ProcessLookupError:
            pass

    def worker_turn(self, case, side, seconds):
        worker = self.workers.get((case, side))
        if worker is None or not worker.ready:
            return None
        clock = threading.Timer(min(90, max(1, self.left() + 1)), self.stop, [worker])
        clock.start()
        try:
            worker.stdin.write(f"{seconds}\n")
            worker.stdin.flush()
            result = json.loads(worker.stdout.readline())
        except (OSError, ValueError) as error:
            worker.ready = False
            self.say(f"{side} of {name_of(case)} fails: {error}")
            return None
        finally:
            clock.cancel()
        with open(f"/proc/{worker.pid}/status", encoding="ascii") as status:
            result["peak_memory_mib"] = next(int(l.split()[1]) / 1024 for l in status if l.startswith("VmHWM"))
        return result

    # ---- Convoy ----

    def convoy_turn(self, case, side, iterations):
        name, _, precision = side.partition("/")
        precision = precision or case.precision
        words = self.pin(case.threads) + [
            self.programs[name], "-q", "bench", case.mode, "--batch-size", str(case.batch), "--image-size",
            str(self.image_size(case.arch)), "--threads", str(case.threads), "--warmup", "2", "--iterations",
            str(iterations), "--device", "cpu", "--format", "json"]
        words += (["--weights", self.path(case.arch, "-int8.safetensors")] if precision == "int8" else
                  ["--arch", case.arch, "--precision", precision])
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.log,
                              env=self.environment("convoy", case.threads)) as process:
            clock = threading.Timer(min(60, max(1, self.left() + 1)), process.kill)
            clock.start()
            text = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            clock.cancel()
        if process.returncode != 0:
            self.say(f"{side} of {name_of(case)} fails with exit code {process.returncode}")
            return None
        result = json.loads(text)
        result = result[0] if isinstance(result, list) else result
        return {"images_per_second": result["images_per_second"], "latency_ms": result["latency_ms"]["p50"],
                "peak_memory_mib": usage.ru_maxrss / 1024, "version": None}

    # ---- a case ----

    def run_case(self, case):
        begin, iterations, sides = time.monotonic(), {}, []
        for side in case.sides:  # kernels are timed, pages touched
            if side.split("/")[0] in self.programs:
                first = self.convoy_turn(case, side, 3)
                if first:
                    steps = self.settings.turn * first["images_per_second"] / case.batch
                    iterations[side] = min(2000, max(3, round(steps)))
                    sides.append(side)
            elif self.worker_turn(case, side, 0.1):
                sides.append(side)
        timed = time.monotonic() - begin
        rounds, longest = [], 2 * self.settings.turn * len(sides)
        for _ in range(self.settings.rounds):
            if not sides or self.left() < longest:
                break
            start, turn, row = time.monotonic(), list(sides), {}
            self.order.shuffle(turn)
            for side in turn:
                row[side] = (self.convoy_turn(case, side, iterations[side]) if side in iterations else
                             self.worker_turn(case, side, self.settings.turn))
            rounds.append(row)
            longest = time.monotonic() - start
        for side in case.sides:
            worker = self.workers.pop((case, side), None)
            if worker:
                self.stop(worker)
        return self.summary(case, sides, rounds, timed, time.monotonic() - begin)

    def summary(self, case, sides, rounds, timed, whole):
        result = {**case._asdict(), "rounds": rounds, "seconds": round(whole, 1), "first_seconds": round(timed, 1), "results": {}}
        for side in sides:
            rows = [row[side] for row in rounds if row[side]]
            if rows:
                result["results"][side] = {key: statistics.median(row[key] for row in rows) for key in
                                           ("images_per_second", "latency_ms", "peak_memory_mib")}
                result["results"][side]["version"] = rows[0]["version"]
        own = result["results"].get("convoy")
        if own:
            for side in result["results"].values():
                side["speed_ratio"] = own["images_per_second"] / side["images_per_second"]
        self.say(f"{name_of(case)}: " + ", ".join(
            f"{side} {r['images_per_second']:.1f}" for side, r in result["results"].items()) +
            f" images/s ({len(rounds)} rounds, {whole:.0f} s, first turns {timed:.0f})")
        return result


def table(results):
    lines = ["| case | side | images/s | ms a batch | Convoy / side | peak MiB | rounds |", "|---|---|---|---|---|---|---|"]
    for result in results:
        name = f"{result['arch']} {result['mode']} {result['precision']}, batch {result['batch']}, {result['threads']} threads"
        for side, r in result["results"].items():
            ratio = f"{r['speed_ratio']:.2f}" if "speed_ratio" in r else ""
            each = " ".join(f"{row[side]['images_per_second']:.1f}" for row in result["rounds"] if row[side])
            version = " " + r["version"].split("+")[0].split("-")[0] if r["version"] else ""
            lines.append(f"| {name} | {side}{version} | {r['images_per_second']:.1f} | {r['latency_ms']:.2f} | {ratio} | "
                         f"{r['peak_memory_mib']:.0f} | {each} |")
            name = ""
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", help="a file of cases instead of those that are here")
    parser.add_argument("--seconds", type=float, default=200, help="of everything")
    parser.add_argument("--prepare", type=float, default=60, help="seconds at most until the peers are ready")
    parser.add_argument("--only-prepare", action="store_true", help="networks, and what peers keep of compiling")
    parser.add_argument("--turn", type=float, default=0.6, help="seconds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--images", help="folder with train/ and val/ that int8's ranges are chosen from")
    parser.add_argument("--folder", default="quick-peers", help="of networks and logs")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--also", action="append", default=[], metavar="NAME=PROGRAM", help="another build of Convoy")
    parser.add_argument("--random-weights", default=os.path.join(FOLDER, "../build/tests/random_weights"))
    parser.add_argument("--python", default=sys.executable, help="one that has the peers")
    parser.add_argument("--json", help="write the result here as well")
    return parser.parse_args()


def main():
    settings = parse()
    os.makedirs(settings.folder, exist_ok=True)
    bench = Bench(settings)
    text = CASES
    if settings.cases:
        with open(settings.cases, encoding="ascii") as file:
            text = file.read()
    cases = [known(case, bench.programs) for case in read_cases(text, len(bench.cpus))]
    archs = sorted({case.arch for case in cases}, key=lambda arch: "resnext" in arch)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda arch: bench.make_network(arch, any(c.arch == arch and c.precision == "int8" for c in cases)), archs))
    bench.say("the networks are there")
    bench.start_workers(cases)
    bench.say(f"{sum(w.ready for w in bench.workers.values() if hasattr(w, 'ready'))} peers are ready")
    results = []
    try:
        for case in [] if settings.only_prepare else cases:
            if bench.left() < 4 * settings.turn * len(case.sides):
                bench.say(f"not reached: {name_of(case)}")
                continue
            results.append(bench.run_case(case))
            if settings.json:
                with open(settings.json + ".new", "w", encoding="ascii") as file:
                    json.dump({"image_size": settings.image_size, "cpus": bench.cpus, "results": results}, file, indent=1)
                os.replace(settings.json + ".new", settings.json)
    finally:
        for worker in bench.workers.values():
            bench.stop(worker)
    if results:
        print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
