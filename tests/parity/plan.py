#!/usr/bin/env python3
"""Check the plan that `convoy info ARCH --plan --format json` prints (a file, or stdin):

- no reorder of an activation or its gradient inside a stage (scopes layer1 to layer4): only at the graph's ends, of
  weights and of weight gradients;
- inference has no batch norm left outside the setup steps, and no ReLU or addition of its own;
- every step reads what was written before, and nothing is overwritten while it is still needed: checked on the printed
  offsets, with live ranges found here from the steps alone;
- activation memory is at most 1.1 times the largest live set, computed here from the steps' shapes, types, layouts
  and working memory.
  (The live set is what no arrangement can go below; finding the best arrangement is NP-hard, the plan's is greedy.)

- every step says its kernel and the reason for it.

Fields used, of each of "steps": op, kernel, reason, scope, phase ("setup", "forward", "backward"), inputs and outputs (lists of
{tensor, shape, dtype, layout}), scratch_bytes; of each of "tensors": storage, alias, bytes, offset, last; of "memory":
activation_bytes. `alias` is the tensor whose memory this one takes over (in place), `last` equals the number of steps
for results, which stay until they are read.
"""
import argparse
import json
import sys

MEMORY_LIMIT = 1.1
SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "u8": 1, "i8": 1, "bool": 1}
BLOCKS = {"nChw16c": 16, "nChw8c": 8}


def tensor_bytes(operand):
    """Bytes of a tensor by its shape, type and layout; None for a layout that only the backend knows."""
    if operand["layout"] == "opaque":
        return None
    shape = list(operand["shape"])
    block = BLOCKS.get(operand["layout"])
    if block:
        shape[1] = -(-shape[1] // block) * block
    count = SIZES[operand["dtype"]]
    for extent in shape:
        count *= extent
    return count


class Plan:
    def __init__(self, text):
        plan = json.loads(text)
        self.steps, self.tensors, self.memory = plan["steps"], plan["tensors"], plan["memory"]
        self.inference = plan["mode"] == "infer"
        self.problems = []
        self.first, self.last, self.bytes = {}, {}, {}
        self.find_ranges()

    def fail(self, step, text):
        where = f"step {step} ({self.steps[step]['op']} {self.steps[step]['scope']}): " if step is not None else ""
        self.problems.append(where + text)

    def storage(self, operand):
        return self.tensors[operand["tensor"]]["storage"]

    def root(self, tensor):
        while self.tensors[tensor]["alias"] >= 0:
            tensor = self.tensors[tensor]["alias"]
        return tensor

    def find_ranges(self):
        """First writer and last reader of every tensor."""
        for s, step in enumerate(self.steps):
            for operand in step["inputs"]:
                t = operand["tensor"]
                if t not in self.first and self.storage(operand) in ("activation", "constant", "gradient"):
                    self.fail(s, f"reads tensor {t} before any step has written it")
                self.last[t] = s
            for operand in step["outputs"]:
                t = operand["tensor"]
                if t in self.first and self.storage(operand) == "activation":
                    self.fail(s, f"writes tensor {t}, which step {self.first[t]} writes too")
                self.first.setdefault(t, s)
                self.last[t] = max(s, self.last.get(t, s))
                size = tensor_bytes(operand)
                self.bytes[t] = self.tensors[t]["bytes"] if size is None else size
                if size is not None and size != self.tensors[t]["bytes"]:
                    self.fail(s, f"tensor {t} has {self.tensors[t]['bytes']} bytes instead of {size}")
        for t, tensor in enumerate(self.tensors):
            if tensor["storage"] == "activation" and tensor["last"] >= len(self.steps):
                self.last[t] = len(self.steps) - 1

    def check_reorders(self):
        """Returns how many reorders of activations there are."""
        count = 0
        for s, step in enumerate(self.steps):
            if step["op"] != "reorder" or step["phase"] == "setup":
                continue
            kinds = {self.storage(o) for o in step["inputs"] + step["outputs"]}
            if kinds & {"weight", "gradient", "state"}:
                continue
            count += 1
            if step["scope"].startswith("layer"):
                self.fail(s, "reorders an activation inside a stage")
        return count

    def check_reasons(self):
        for s, step in enumerate(self.steps):
            if not step["kernel"] or not step["reason"]:
                self.fail(s, "does not say its kernel and the reason for it")

    def check_fusion(self):
        for s, step in enumerate(self.steps):
            if step["phase"] == "setup":
                continue
            if self.inference and (step["op"].startswith(("batch_norm", "fold_batch_norm")) or
                                   step["op"] in ("relu", "add")):
                self.fail(s, "is left in inference")
            if not self.inference and step["op"] == "relu":
                self.fail(s, "is not fused with the batch norm before it")

    def check_memory(self):
        """Returns the largest live set in bytes."""
        blocks = {}  # root -> [first, last, bytes, tensors]
        for t, first in self.first.items():
            if self.tensors[t]["storage"] != "activation":
                continue
            root = self.root(t)
            block = blocks.setdefault(root, [first, self.last[t], 0, []])
            block[0], block[1] = min(block[0], first), max(block[1], self.last[t])
            block[2] = max(block[2], self.bytes[t])
            block[3].append(t)
        for root, (_, _, _, members) in blocks.items():
            members.sort(key=lambda t: self.first[t])
            for before, after in zip(members, members[1:]):
                if self.last[before] > self.first[after]:
                    self.fail(self.first[after], f"tensor {after} takes over tensor {before}, which step "
                                                 f"{self.last[before]} still reads")
                if self.tensors[after]["offset"] != self.tensors[root]["offset"]:
                    self.fail(self.first[after], f"tensor {after} does not lie where the tensor it takes over does")
        placed = sorted(blocks.items(), key=lambda item: self.tensors[item[0]]["offset"])
        for i, (a, (first, last, size, _)) in enumerate(placed):
            end = self.tensors[a]["offset"] + size
            if end > self.memory["activation_bytes"]:
                self.fail(first, f"tensor {a} ends past the activation memory")
            for b, other in placed[i + 1:]:
                if self.tensors[b]["offset"] >= end:
                    break
                if other[0] <= last and first <= other[1]:
                    self.fail(max(first, other[0]), f"tensors {a} and {b} overlap while both are needed")
        live = [0] * (len(self.steps) + 1)
        for first, last, size, _ in blocks.values():
            live[first] += size
            live[last + 1] -= size
        for s, step in enumerate(self.steps):  # working memory of a step lies in the same area
            live[s] += step["scratch_bytes"]
            live[s + 1] -= step["scratch_bytes"]
        largest = running = 0
        for change in live:
            running += change
            largest = max(largest, running)
        if self.memory["activation_bytes"] > MEMORY_LIMIT * largest:
            self.fail(None, f"activation memory is {self.memory['activation_bytes']} bytes, more than {MEMORY_LIMIT} "
                            f"times the largest live set of {largest}")
        return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", help="the printed plan; without it stdin")
    text = parser.parse_args().file
    if text:
        with open(text) as file:
            text = file.read()
    else:
        text = sys.stdin.read()
    plan = Plan(text)
    reorders = plan.check_reorders()
    plan.check_fusion()
    plan.check_reasons()
    largest = plan.check_memory()
    mib = 1 << 20
    print(f"{len(plan.steps)} steps, {reorders} reorders at the graph's ends, activation memory "
          f"{plan.memory['activation_bytes'] / mib:.2f} MiB, largest live set {largest / mib:.2f} MiB, ratio "
          f"{plan.memory['activation_bytes'] / max(largest, 1):.3f}")
    for problem in plan.problems[:20]:
        print(problem)
    if len(plan.problems) > 20:
        print(f"... {len(plan.problems)} problems")
    return 1 if plan.problems else 0


if __name__ == "__main__":
    sys.exit(main())
