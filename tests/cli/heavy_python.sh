#!/bin/bash
# The Python package out of a wheel made from what the build installs: classifying whatever holds an image, detecting, training, errors,
# threads, PyTorch in the same process; the program that the wheel brings.
. "$(dirname "$0")/support_common.sh"
python=${CONVOY_PYTHON:-/usr/bin/python3}
command -v "$python" >/dev/null || skip "no Python here"
[ -n "${CONVOY_BUILD:-}" ] || skip "CONVOY_BUILD is not set"
export PYTHONDONTWRITEBYTECODE=1
expect 0 cmake --install "$CONVOY_BUILD" --prefix "$work/prefix"
mv "$work"/prefix/lib/*/libconvoy.so* "$work"/prefix/lib/*/convoy "$work/prefix/lib/" 2>/dev/null # where the libraries' folder is not lib
expect 0 "$python" "$sources/scripts/wheel" --root "$work/prefix" --out dist --tag linux_x86_64
expect_text out ' MB$'
cp dist/*.whl first.whl
expect 0 "$python" "$sources/scripts/wheel" --root "$work/prefix" --out dist --tag linux_x86_64
checks=$((checks + 1))
cmp -s first.whl dist/*.whl || fail "the same files make another wheel"
expect 1 "$python" "$sources/scripts/wheel" --root "$work/prefix" --out dist --tag manylinux_2_17_x86_64
expect_text out 'needs glibc'
expect 1 "$python" "$sources/scripts/wheel" --root "$work/nowhere"
expect_text err 'no installation'
expect 0 "$python" -m zipfile -e first.whl site
# Every file is in RECORD with its hash.
expect 0 "$python" -c 'import base64, csv, hashlib, zipfile
wheel = zipfile.ZipFile("first.whl")
record = [name for name in wheel.namelist() if name.endswith("/RECORD")][0]
rows = {name: digest for name, digest, _ in csv.reader(wheel.read(record).decode().splitlines())}
assert set(rows) == set(wheel.namelist()), set(rows) ^ set(wheel.namelist())
for name, digest in rows.items():
    said = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
    assert name == record or digest == "sha256=" + said, name'
chmod +x site/convoy/bin/convoy # as pip does
make_shapes data 2 1
export PYTHONPATH=$work/site
expect 0 "$python" -m convoy --version
expect_text out "^convoy [0-9.]+$"
expect 2 "$python" -m convoy trane
expect 0 env CONVOY_INCLUDE="$sources/include" "$python" "$sources/tests/python/package.py" data run
expect_text out ' checks passed'
cat out
expect 0 "$convoy" -q dataset shapes boxes --boxes --train-images 4 --val-images 3 --image-size 96 --classes 3
expect 0 "$python" "$sources/tests/python/detection.py" boxes detector
expect_text out ' checks passed'
cat out
finish
