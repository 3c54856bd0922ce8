#!/usr/bin/env python3
"""What ranks cost: throughput beside one process, and sums over a network of known bandwidth beside the cost model.

    bench/ranks.py                              # two ranks of a thread each, one rank of two threads, two lone processes
    bench/ranks.py --network 1 10               # two hosts (network namespaces; root) at 1 and at 10 Gbit/s
    bench/ranks.py --network 1 --delay 1        # with a delay of 1 ms each way, where the kernel has netem

Every training is `convoy train` on synthetic images; its number is the median time of a step without the first ones.
Rounds alternate the sides. Without --network:

    one      one process, two threads, batch 2 B
    ranks    two processes of a thread, batch B each, bound to a core each
    alone    the same two processes without knowing of each other: what a step costs without sums

Limits: ranks reach 0.95 of the images per second of `one`, and their step takes at most 1.08 times that of `alone`.

With --network two namespaces are joined by a pair of virtual devices whose rate tc limits, first at 100 Gbit/s: then the
sums take what the hosts themselves need for copying and adding. `sums` is the time in which the gradients of a step moved
(the log's train.comm_time, without waiting for a rank that computes still), `model` what doc/cluster.md says of it: the
root of the squares of what the wire and what the hosts need. `hidden` is the part of the sums for which no step stood still
(train.comm_exposed_time). Limit: sums within 15 % of the model.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
BUCKET = 25 * 2**20  # bytes; as in src/trainer/trainer.c. A small one comes last.
SKIPPED = 2  # first steps
PACKETS = 1514 / 1448  # bytes of an Ethernet frame for each byte that TCP carries
UNLIMITED = 100  # Gbit/s: more than the hosts can take


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=16, help="of a rank")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--network", type=float, nargs="+", metavar="GBIT", help="rates to try")
    parser.add_argument("--delay", type=float, default=0, help="of each direction, in ms (needs netem)")
    parser.add_argument("--compression", default="none", help="--gradient-compression")
    parser.add_argument("--convoy", default=os.path.join(FOLDER, "../build/convoy"))
    parser.add_argument("--json", help="write the numbers here as well")
    return parser.parse_args()


def command(settings, folder, batch, *more):
    return [settings.convoy, "-q", "train", "--data-backend", "synthetic", "--arch", settings.arch, "--image-size",
            str(settings.image_size), "--num-classes", "1000", "--batch-size", str(batch), "--precision",
            settings.precision, "--epochs", "1", "--prof", str(settings.steps + SKIPPED), "--training-only",
            "--no-checkpoints", "--print-freq", "1", "--lr", "0.001", "--workspace", folder, *more]


def numbers(folder, key):
    """Of each step but the first ones."""
    values = []
    with open(os.path.join(folder, "experiment_raport.json")) as file:
        for line in file:
            record = json.loads(line.partition("DLLL")[2] or line)
            if isinstance(record.get("step"), list) and len(record["step"]) == 2 and key in record["data"]:
                values.append(record["data"][key])
    if len(values) <= SKIPPED:
        sys.exit(f"{folder}: the log has no {key} of each step")
    return values[SKIPPED:]


def number(folder, key):
    """Of the epoch."""
    with open(os.path.join(folder, "experiment_raport.json")) as file:
        for line in file:
            record = json.loads(line.partition("DLLL")[2] or line)
            if record.get("step") == [0] and key in record["data"]:
                return record["data"][key]
    sys.exit(f"{folder}: the log has no {key}")


def run_all(commands, environments=None):
    running = [subprocess.Popen(line, stdout=subprocess.DEVNULL, env={**os.environ, **(environments or {}).get(i, {})})
               for i, line in enumerate(commands)]
    if any([process.wait() != 0 for process in running]):
        sys.exit("failed: " + " ".join(commands[0]))


def measure_throughput(settings, work):
    sides = {"one": [], "ranks": [], "alone": []}
    for round_number in range(settings.rounds):
        folder = os.path.join(work, f"one-{round_number}")
        run_all([command(settings, folder, 2 * settings.batch_size, "--threads", "2")])
        sides["one"] += numbers(folder, "train.compute_time")
        folder = os.path.join(work, f"ranks-{round_number}")
        run_all([command(settings, folder, settings.batch_size, "--processes", "2", *compression(settings))])
        sides["ranks"] += numbers(folder, "train.compute_time")
        folders = [os.path.join(work, f"alone-{round_number}-{core}") for core in range(2)]
        run_all([["taskset", "-c", str(core), *command(settings, folders[core], settings.batch_size, "--threads", "1")]
                 for core in range(2)])
        for folder in folders:
            sides["alone"] += numbers(folder, "train.compute_time")
    step = {name: statistics.median(times) for name, times in sides.items()}
    images = 2 * settings.batch_size
    print(f"{settings.arch}, {settings.image_size} px, {settings.precision}, {images} images a step\n\n"
          "| | s a step | images/s |\n|---|---|---|")
    for name, seconds in step.items():
        print(f"| {name} | {seconds:.3f} | {images / seconds:.2f} |")
    throughput, cost = step["one"] / step["ranks"], step["ranks"] / step["alone"]
    print(f"\nranks have {throughput:.3f} of the throughput of one process (at least 0.95)")
    print(f"their step takes {cost:.3f} times that without sums (at most 1.08)")
    return {"step": step, "throughput": throughput, "cost": cost}, throughput >= 0.95 and cost <= 1.08


def compression(settings):
    return [] if settings.compression == "none" else ["--gradient-compression", settings.compression]


def ip(*arguments):
    subprocess.run(arguments, check=True)


class Hosts:
    """Two network namespaces, joined by a pair of devices with a limited rate."""

    def __init__(self, gbit, delay):
        self.names = [f"convoy-{os.getpid()}-{i}" for i in range(2)]
        try:
            for name in self.names:
                ip("ip", "netns", "add", name)
            ip("ip", "link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns",
               self.names[1])
            for i, name in enumerate(self.names):
                inside = ["ip", "netns", "exec", name]
                ip(*inside, "ip", "link", "set", "lo", "up")
                ip(*inside, "ip", "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
                ip(*inside, "ip", "link", "set", "eth0", "up")
                if delay:
                    ip(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{delay}ms", "rate",
                       f"{gbit}gbit", "limit", "100000")
                else:
                    ip(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{gbit}gbit", "burst",
                       "1mb", "latency", "50ms")
        except subprocess.CalledProcessError as error:
            self.close()
            sys.exit(f"cannot make two hosts: {error}")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def gradient_bytes(settings):
    text = subprocess.run([settings.convoy, "info", settings.arch, "--format", "json"], check=True,
                          stdout=subprocess.PIPE).stdout
    return json.loads(text)["parameters"] * (4 if settings.compression == "none" else 2)


def wire_seconds(bytes_, gbit, delay):
    """doc/cluster.md: seconds of the sums of a step, for two ranks."""
    ranks, buckets = 2, -(-bytes_ // BUCKET) + 1
    return 2 * (ranks - 1) / ranks * PACKETS * bytes_ / (gbit * 1e9 / 8) + 2 * (ranks - 1) * buckets * delay


def train_alone(settings, folders):
    run_all([["taskset", "-c", str(i), *command(settings, folders[i], settings.batch_size, "--threads", "1")]
             for i in range(2)])
    return [time for folder in folders for time in numbers(folder, "train.compute_time")]


def train_together(settings, hosts, folder):
    line = command(settings, folder, settings.batch_size, "--threads", "1", *compression(settings))
    run_all([["ip", "netns", "exec", name, "taskset", "-c", str(i), *line] for i, name in enumerate(hosts.names)],
            {i: {"RANK": str(i), "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500",
                 "CONVOY_COMM": "tcp"}  # they share memory; bytes must take the network
             for i in range(2)})
    return (statistics.median(numbers(folder, "train.compute_time")), number(folder, "train.comm_time"),
            number(folder, "train.comm_exposed_time"))


def measure_network(settings, work):
    bytes_ = gradient_bytes(settings)
    print(f"{settings.arch}, {settings.image_size} px, {settings.precision}, batch {settings.batch_size}, two hosts, "
          f"{bytes_ / 1e6:.0f} MB of gradients\n\n"
          "| Gbit/s | step alone | step | sums | model | off by | hidden |\n|---|---|---|---|---|---|---|")
    rates = [UNLIMITED, *settings.network]
    found = {gbit: [] for gbit in rates}
    alone = []
    for round_number in range(settings.rounds):
        alone += train_alone(settings, [os.path.join(work, f"{round_number}-alone{i}") for i in range(2)])
        for gbit in rates:
            hosts = Hosts(gbit, settings.delay)
            try:
                found[gbit].append(train_together(settings, hosts, os.path.join(work, f"{round_number}-{gbit}")))
            finally:
                hosts.close()
    rows, good, host = [], True, None
    for gbit in rates:
        step, sums, exposed = (statistics.median(values) for values in zip(*found[gbit]))
        wire = wire_seconds(bytes_, gbit, settings.delay / 1000)
        host = host or math.sqrt(max(0, sums**2 - wire**2))
        row = {"gbit": gbit, "alone": statistics.median(alone), "step": step, "sums": sums, "exposed": exposed,
               "model": math.hypot(host, wire)}
        off = sums / row["model"] - 1
        print(f"| {gbit:g} | {row['alone']:.3f} s | {step:.3f} s | {sums:.3f} s | {row['model']:.3f} s | "
              f"{100 * off:+.0f} % | {100 * (1 - exposed / sums):.0f} % |")
        good = good and abs(off) <= 0.15
        rows.append(row)
    return {"rows": rows}, good


def main():
    settings = parse()
    settings.convoy = os.path.abspath(settings.convoy)
    with tempfile.TemporaryDirectory() as work:
        measure = measure_network if settings.network else measure_throughput
        result, good = measure(settings, work)
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump({"options": vars(settings), **result}, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
