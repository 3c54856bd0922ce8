#!/bin/bash
# What scripts/portable, scripts/wheel and scripts/deb make, on a Debian that has nothing but its base system (debootstrap): the
# wheel by pip and the packages by apt, each up to the first answer in less than a minute; purged without a trace. Needs root,
# Debian's and PyPI's packages. The parts of the portable build are kept in build-portable/.
. "$(dirname "$0")/support_common.sh"
for tool in debootstrap lintian nasm fakeroot zstd patchelf; do
    command -v $tool >/dev/null || skip "no $tool here (scripts/setup --package)"
done
[ "$(id -u)" = 0 ] || skip "debootstrap needs root"
sanitized && skip "packages are Release builds"
# GPU kernels are the same in all builds: compiled once, for the one that is tested.
kernels=-DCONVOY_CUDA_KERNELS=${CONVOY_BUILD:?}
CONVOY_PORTABLE_OPTIONS=$kernels expect 0 "$sources/scripts/portable" --archive
expect 0 "$sources/scripts/wheel" --out "$work/dist"
expect 0 "$sources/scripts/check-glibc" 2.28 "$sources/build-portable/root"
expect 0 bash -c "cd '$sources'/build-portable && sha256sum -c ./*.tar.zst.sha256"
expect 0 "$sources/scripts/deb" "$work/debs" "$kernels"
# Who gives packages to others names a maintainer, and files no bug for a first upload.
expect 0 lintian --fail-on error,warning --allow-root \
    --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs debs/*.deb
if expect 0 python3 -m venv tools && tools/bin/pip -q install auditwheel >/dev/null 2>&1; then
    expect 0 tools/bin/auditwheel show dist/*.whl
    expect_text out 'manylinux_2_(27|28)_x86_64'
else
    skip_part "no auditwheel to be had"
fi

expect 0 debootstrap --variant=minbase bookworm root
[ $rc = 0 ] || finish
trap 'umount "$work/root/proc" 2>/dev/null; rm -rf "$work"' EXIT
mount -t proc proc root/proc
cp /etc/resolv.conf root/etc/
cp -r dist debs root/tmp/
make_shapes root/tmp/data 2 1
cat >root/tmp/first.sh <<'END'
set -e
cd /tmp
run=$1
shift
"$@" --version
"$@" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 1 --workspace "$run"
"$@" classify data/val/*/*.jpg --weights "$run/model_best.safetensors" | head -n 2
END
inside() { chroot root env DEBIAN_FRONTEND=noninteractive "$@"; }
within_a_minute() { # SECONDS: when it began
    checks=$((checks + 1))
    [ $(($(date +%s) - $1)) -lt 60 ] || fail "the first answer took $(($(date +%s) - $1)) s"
}
expect 0 inside apt-get -qq update
# ---- packages ----
begin=$(date +%s)
expect 0 inside sh -c 'apt-get -qq -y --no-install-recommends install /tmp/debs/convoy_*.deb /tmp/debs/libconvoy0_*.deb'
expect 0 inside bash /tmp/first.sh run-packages convoy
within_a_minute "$begin"
expect 0 inside sh -c 'apt-get -qq -y --no-install-recommends install /tmp/debs/python3-convoy_*.deb'
expect 0 inside python3 -c 'import convoy, glob
print(convoy.Classifier("/tmp/run-packages/model_best.safetensors").classify(sorted(glob.glob("/tmp/data/val/*/*.jpg"))[0]))'
expect_text out 'Prediction'
expect 0 inside sh -c 'apt-get -qq -y --no-install-recommends install gcc libc6-dev pkgconf /tmp/debs/libconvoy-dev_*.deb'
expect 0 inside sh -c 'cd /tmp && for example in /usr/share/doc/convoy/examples/*.c; do
    cc -std=c99 -Wall -Wextra -Werror "$example" -o "$(basename "$example" .c)" $(pkg-config --cflags --libs convoy) -lm || exit 1
done'
expect 0 inside sh -c 'cd /tmp && ./classify_memory run-packages/model_best.safetensors data/val/arrow/*.jpg'
expect_text out '^ *[0-9.]+ %  '
expect 0 inside apt-get -qq -y purge convoy libconvoy0 libconvoy-dev python3-convoy
checks=$((checks + 1))
left=$(find root -path root/proc -prune -o -path root/tmp -prune -o -path root/root -prune -o -name '*convoy*' -print)
[ -z "$left" ] || fail "purging leaves $left"
# ---- the wheel ----
expect 0 inside apt-get -qq -y --no-install-recommends install python3-venv
expect 0 inside python3 -m venv /tmp/venv
begin=$(date +%s)
expect 0 inside sh -c '/tmp/venv/bin/pip -q install --no-index /tmp/dist/*.whl'
expect 0 inside bash /tmp/first.sh run-wheel /tmp/venv/bin/convoy
within_a_minute "$begin"
expect 0 inside /tmp/venv/bin/python -c 'import convoy, glob
print(convoy.Classifier("/tmp/run-packages/model_best.safetensors").classify(sorted(glob.glob("/tmp/data/val/*/*.jpg"))[0]))'
expect_text out 'Prediction'
# ---- the archive ----
expect 0 bash -c "mkdir root/opt/convoy && zstd -dc '$sources'/build-portable/*.tar.zst | tar -C root/opt/convoy --strip-components 1 -xf -"
expect 0 inside bash /tmp/first.sh run-archive /opt/convoy/bin/convoy
finish
