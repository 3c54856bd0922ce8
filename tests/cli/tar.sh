#!/bin/bash
# WebDataset's tar archives, written by an independent program: the same check, evaluation and training as over the folder,
# which is packed from them too; what is damaged is named.
. "$(dirname "$0")/support_common.sh"
narrow
python=$(command -v python3) || skip "python3 is missing"
make_shapes data 4 3
"$python" - <<'END' || fail "the archives could not be written"
import io, os, tarfile
os.mkdir("tars")
classes = sorted(os.listdir("data/train"))
open("tars/classes.txt", "w").write("\n".join(classes) + "\n")
formats = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
for part, shards in (("train", 3), ("val", 2)):
    samples = [(c, n) for c in classes for n in sorted(os.listdir(f"data/{part}/{c}"))]
    for s in range(shards):
        with tarfile.open(f"tars/{part}-{s:06}.tar", "w", format=formats[s]) as tar:
            for i in range(len(samples) * s // shards, len(samples) * (s + 1) // shards):
                c, n = samples[i]
                key = f"{'long' * 30 if s else 'a'}/{i:06}"
                image = open(f"data/{part}/{c}/{n}", "rb").read()
                for name, content in ((key + ".cls", b"%d" % classes.index(c)), (key + ".jpg", image)):
                    about = tarfile.TarInfo(name)
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
END
expect 0 tiny_train data --epochs 1 --workspace folder
expect 0 tiny_train tars --epochs 1 --workspace run
expect_same folder/checkpoint.safetensors run/checkpoint.safetensors
for set in data tars; do
    expect 0 "$convoy" -q evaluate $set --weights folder/checkpoint.safetensors --format json
    grep -vE 'images_per_second|latency_ms' out >$set.json
    expect 0 "$convoy" check $set --format json
    cp out $set.check
done
expect_same data.json tars.json
expect_same data.check tars.check
expect 0 "$convoy" bench data tars --seconds 0.1 --format json
expect_text out '"bottleneck": "(reading|decoding|transform)"'
expect 0 "$convoy" dataset pack tars packed
expect 0 "$convoy" check packed --format json
expect_same data.check out
expect_sentence 2 'has files val-\*\.tar' tiny_train tars --val-split 0.1 --workspace none

truncate -s -20000 tars/val-000001.tar
expect_sentence 65 '"tars/val-000001.tar": the archive is truncated' tiny_train tars --workspace none
expect_sentence 65 'archive is truncated' "$convoy" -q check tars
echo "no archive" >tars/val-000001.tar
expect_sentence 65 '"tars/val-000001.tar": the archive is truncated at byte 0' tiny_train tars --workspace none
finish
