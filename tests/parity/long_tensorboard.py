"""What TensorBoard itself finds in run directories: long_tensorboard.py RUNDIR RUNDIR. Both hold the same training of 2
epochs with 8 steps, a record every 3 steps."""
import csv
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(folder):
    accumulator = EventAccumulator(folder)  # of the folder, as TensorBoard finds it
    accumulator.Reload()
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]}


def main():
    plain, parts = (scalars(folder) for folder in sys.argv[1:3])
    rows = list(csv.DictReader(open(f"{sys.argv[1]}/metrics.csv")))
    tags = {"train/loss", "train/lr", "train/images_per_second", "train/data_share", "train/epoch_loss", "train/l2_loss",
            "train/total_loss", "epoch", "val/loss", "val/top1", "val/top5", "val/images_per_second"}
    assert set(plain) == set(parts) == tags, set(plain) ^ tags
    assert [step for step, _ in plain["train/loss"]] == [3, 6, 8, 11, 14, 16]
    assert [step for step, _ in plain["val/top1"]] == [8, 16]
    for (_, value), row in zip(plain["val/top1"], rows):
        assert math.isclose(value, float(row["val.top1"]), rel_tol=1e-6)
    losses = (plain["train/" + name] for name in ("total_loss", "epoch_loss", "l2_loss"))
    for (_, total), (_, loss), (_, l2) in zip(*losses):
        assert l2 > 0 and math.isclose(total, loss + l2, rel_tol=1e-6)  # each is rounded to a float
    for tag in tags - {"train/images_per_second", "train/data_share", "val/images_per_second"}:  # which are of time
        assert plain[tag] == parts[tag], tag
    print("TensorBoard reads", sum(map(len, plain.values())), "scalars of each run")


main()
