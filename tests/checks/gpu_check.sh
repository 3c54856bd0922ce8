#!/bin/sh
# scripts/gpu-check on an emulated GPU, in tiny settings, and where there is none.
set -eu
source=$1
emulated=${CONVOY_BUILD:?the build folder}/tests/emulated_cuda/libconvoy_cuda_emulated.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 TMPDIR="$work"
# Networks of 16 channels, a tenth of the time (tests/faults/narrow.c), but where the emulated GPU is compared with the CPU.
wide_path=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH="$CONVOY_BUILD/tests/narrow${wide_path:+:$wide_path}"

fail() {
    echo "FAILED: $*"
    exit 1
}
expect() { # CODE OPTION...: of gpu-check
    wanted=$1
    shift
    code=0
    "$source/scripts/gpu-check" "$@" >"$work/out" 2>&1 || code=$?
    cat "$work/out"
    [ "$code" = "$wanted" ] || fail "exit code $code instead of $wanted: gpu-check $*"
}
has() { # FILE PATTERN
    grep -q -- "$2" "$work/$1" || fail "nothing in $1 matches $2"
}

expect 2
expect 2 everything
expect 2 test --seconds
expect 2 test --seconds ten
# No GPU: one sentence, exit code 77.
for step in test bench peer; do
    CONVOY_CUDA_MODULE=$work/none expect 77 $step "$work/none"
    [ "$(wc -l <"$work/out")" = 1 ] || fail "$step says more than a sentence"
    has out "^gpu-check $step: skipped: "
done

# A GPU without a library of NVIDIA's is none of a machine without GPUs: exit code 1, and where it was looked for.
mkdir "$work/lacking"
cat >"$work/lacking/convoy" <<'END'
#!/bin/sh
echo "convoy: cuDNN 9.8 or newer is not to be found: looked for libcudnn_graph.so.9 where the loader looks and in /opt/x" >&2
exit 69
END
chmod +x "$work/lacking/convoy"
CONVOY_BUILD=$work/lacking expect 1 test "$work/none"
has out 'where the loader looks and in /opt/x'

export CONVOY_CUDA_MODULE="$emulated"
# A checker that was not built, and a pass that is not recorded, which only a warning tells of.
CONVOY_BUILD=$work/unbuilt
mkdir "$CONVOY_BUILD"
ln -s "${emulated%/tests/*}/convoy" "$CONVOY_BUILD/convoy"
CONVOY_BUILD=$work/unbuilt expect 1 kernels "$work/unchecked" --quick
has unchecked/gpu-kernels.md '^| test_kernels | failed | [0-9]* | the checker is missing'
# A kernel that ends all work on the GPU: its case is named, and another process continues after it.
mkdir "$CONVOY_BUILD/tests"
cat >"$CONVOY_BUILD/tests/test_kernels" <<'END'
#!/bin/sh
[ "$4" = 1 ] || { echo "[==========] $4 test(s) run." && exit 0; }
echo "case 7, add 1x2, ended all work on the GPU: an error; continue with --from 8" >&2
exit 3
END
chmod +x "$CONVOY_BUILD/tests/test_kernels"
CONVOY_BUILD=$work/unbuilt expect 1 kernels "$work/broken" --quick
has broken/gpu-kernels.md '^| test_kernels | failed | [0-9]* | case 7, add 1x2, ended all work on the GPU: an error; '
has broken/gpu-kernels.md '^| test_kernels from case 8 | passed | [0-9]* | .* 8 test(s) run'
has broken/gpu-test-test_kernels.log '^case 7'
# On four cores in two parts at once: one goes on after such a case, the other finds something before its time is over.
mkdir "$work/four"
printf '#!/bin/sh\necho 4\n' >"$work/four/nproc"
cat >"$CONVOY_BUILD/tests/test_kernels" <<'END'
#!/bin/sh
case $* in
*' --rest') echo '[==========] 3 test(s) run.' ;;
*' --part 0 --from 1') echo 'case 7, add 1x2, ended all work on the GPU: an error; continue with --from 8' && exit 3 ;;
*' --part 0 --from 8')
    printf 'left to other parts: cuda.%s\n' one two
    echo '[==========] 8 test(s) run.'
    ;;
*)
    echo 'left to other parts: cuda.two'
    echo 'add 2x2, floats, cuda.add: output 0: 1 of 4 wrong, worst at 2'
    echo $$ >"$GPU_CHECK_PID"
    exec sleep 60
    ;;
esac
END
chmod +x "$work/four/nproc"
export GPU_CHECK_PID="$work/checker.pid"
PATH=$work/four:$PATH CONVOY_BUILD=$work/unbuilt expect 1 kernels "$work/parts" --seconds 5
has parts/gpu-kernels.md '^| test_kernels, but for the cases | passed | .* 3 test(s) run'
has parts/gpu-kernels.md "^| test_kernels, the cases' part 0 of 2 | failed | .* case 7, add 1x2, ended all work"
has parts/gpu-test-test_kernels.log '8 test(s) run'
has parts/gpu-kernels.md '^| test_kernels: every kernel was run | failed | .* | not run: cuda.two |$'
has parts/gpu-kernels.md "^| test_kernels, the cases' part 1 of 2 | failed | .* 1 of 4 wrong"
PATH=$work/four:$PATH CONVOY_BUILD=$work/unbuilt expect 0 kernels "$work/parts" --seconds 0
has parts/gpu-kernels.md "^| test_kernels, the cases' part 1 of 2 | not reached |"
# Who ends it ends its checkers.
rm "$GPU_CHECK_PID"
PATH=$work/four:$PATH CONVOY_BUILD=$work/unbuilt "$source/scripts/gpu-check" kernels "$work/parts" --seconds 50 \
    >"$work/out" 2>&1 &
for _ in $(seq 100); do
    [ ! -s "$GPU_CHECK_PID" ] || break
    sleep 0.1
done
kill $!
wait $! || true
! kill -0 "$(cat "$GPU_CHECK_PID")" 2>/dev/null || fail "a checker is left over"
CONVOY_BUILD=${emulated%/tests/*}
code=0
CONVOY_CUDA_MODULE=$emulated CONVOY_EMULATED_FAULT=move_one CONVOY_TEST_SOURCE=$source/tests \
    "$CONVOY_BUILD/tests/test_kernels" --device cuda:0 >"$work/out" 2>&1 || code=$?
[ $code = 3 ] || fail "exit code $code of a broken GPU"
has out '^case [0-9]*, .* ended all work on the GPU: an illegal memory access'
# So does a command that says so itself.
cat >"$work/lacking/convoy" <<'END'
#!/bin/sh
case " $* " in *' info '*) echo '{}' && exit 0 ;; esac
[ ! -e "$CONVOY_STARTED" ] || exec "$CONVOY_RIGHT" "$@"
touch "$CONVOY_STARTED"
echo "convoy: cuDNN's engine 67 ended all work on the GPU; start again: it will be left out" >&2
exit 1
END
CONVOY_STARTED=$work/started CONVOY_RIGHT=$CONVOY_BUILD/convoy CONVOY_BUILD=$work/lacking \
    expect 0 bench "$work/again" --quick --part first
has again/gpu-bench.log 'engine 67 ended all work'
has again/gpu-bench.md '^| train resnet18 | fp16 | 2 | [0-9]'
CONVOY_EMULATED_CAPTURE_FAILS=1 expect 1 bench "$work/unrecorded" --quick --part first
has unrecorded/gpu-bench.md 'passes are not recorded'
has unrecorded/gpu-bench.log '^convoy: warning: passes are not recorded'

# compute-sanitizer and ncu: without them, with stand-ins that have something to say, and with errors.
if ! command -v ncu >/dev/null && ! ls /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu >/dev/null 2>&1; then
    expect 0 tools "$work/no-tools" --quick
    has no-tools/gpu-tools.md '^| ncu | skipped | [0-9]* | not to be found on PATH'
fi
mkdir "$work/nvidia"
cat >"$work/nvidia/compute-sanitizer" <<'END'
#!/bin/sh
echo "$*" >>"$SAID"
echo "========= COMPUTE-SANITIZER"
if [ "$2" = "$WRONG" ] && [ "$2" = memcheck ]; then
    echo "========= Invalid __global__ read of size 4 bytes"
    echo "=========     at pool_rows(const float *, int)+0x120"
    echo "=========     by thread (3,0,0) in block (0,0,0)"
    echo "========= ERROR SUMMARY: 1 error" && exit 9
elif [ "$2" = "$WRONG" ]; then
    echo "========= Error: Race reported between Write access at add_tile(float *)+0x70 and Read access at add_tile(float *)+0x90 [12 hazards]"
    echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)" && exit 9
elif [ "$WRONG" = nothing ]; then
    exit 0
fi
case $2 in
memcheck) echo "========= ERROR SUMMARY: 0 errors" ;;
*) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
esac
END
cat >"$work/nvidia/ncu" <<'END'
#!/bin/sh
echo "$*" >>"$SAID"
[ "$WRONG" != counters ] || { echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission" && exit 1; }
echo "==PROF== Connected to process 7"
echo '"ID","Process ID","Kernel Name","Grid Size","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed"'
echo '"","","","","%","ns","%"'
[ "$WRONG" = table ] || for kernel in 0 1 2 3 4 5 6 7 8 9 10 11; do
    echo "\"$kernel\",\"7\",\"kernel_$kernel(float *, int)\",\"(1, 1, 1)\",\"61.5\",\"$((kernel * 1500 + 500))\",\"20.25\""
done
END
chmod +x "$work"/nvidia/*
export SAID="$work/said" WRONG=
tools() { # CODE: in $work/tools-$WRONG
    PATH=$work/nvidia:$PATH expect "$1" tools "$work/tools-$WRONG" --quick
}
tools 0
has tools-/gpu-tools.md '^| compute-sanitizer, memcheck | passed |'
has tools-/gpu-tools.md '^| compute-sanitizer, racecheck | passed | .* 0 hazards displayed'
has tools-/gpu-tools.md '^| kernel_11(float \*, int) | passed | .* | 17.0 us, 61.5 % of memory.s peak, 20.25 % of '
has tools-/gpu-tools.json '"complete": true'
[ "$(grep -c '^| kernel_' "$work/tools-/gpu-tools.md")" = 10 ] || fail 'not the ten longest kernels'
[ "$(ls "$work/tools-" | grep -vc '^cache$')" -le 8 ] || fail 'more than eight files'
has said '^--tool memcheck .* --error-exitcode 9 .*/test_kernels --device cuda:0 --every 12$'
has said '^--tool racecheck .* --every 60$'
has said '^--metrics gpu__time_duration.sum,.* --csv .* bench train --arch resnet18 .* --iterations 1$'
WRONG=memcheck tools 1
has tools-memcheck/gpu-tools.md '^| compute-sanitizer, memcheck | failed | .* read of size 4 bytes at pool_rows('
has tools-memcheck/gpu-tools.md '^| compute-sanitizer, racecheck | passed |'
has tools-memcheck/gpu-sanitizer-memcheck.log 'by thread (3,0,0)'
WRONG=racecheck tools 1
has tools-racecheck/gpu-tools.md '^| compute-sanitizer, racecheck | failed | .* at add_tile('
WRONG=nothing tools 1
has tools-nothing/gpu-tools.md '^| compute-sanitizer, memcheck | failed | .* the tool says nothing'
WRONG=counters tools 0
has tools-counters/gpu-tools.md '^| ncu | skipped | .*ERR_NVGPUCTRPERM'
WRONG=table tools 1
has tools-table/gpu-tools.md '^| ncu, resnet18, .* | failed | .* no kernel'
# What the checker does under them, without them.
CONVOY_KERNELS=first CONVOY_TEST_SOURCE=$source/tests "$CONVOY_BUILD/tests/test_kernels" --device cuda:0 --every 60 \
    >"$work/out" 2>&1 || fail "one of sixty shapes: $(cat "$work/out")"

LD_LIBRARY_PATH=$wide_path expect 0 test "$work/results" --quick
has results/gpu-test.md '^| resnet18, fp16, batch norms fused, on cuda:0 against fp32 on cpu | passed |'
# All steps in little, as far as the time reaches; the next call continues with the cache of the last one.
mkdir -p "$work/kept/cache" "$work/first"
echo times >"$work/kept/cache/times.txt"
tar -cJf "$work/first/gpu-first.tar.xz" -C "$work/kept" ./cache
expect 0 first "$work/first" --quick --seconds 4
has first/gpu-first.md '^| build | passed |'
has first/gpu-first.md '^| kernels | not reached |'
has first/gpu-first.md '^| cuda | emulated GPU'
[ "$(ls "$work/first" | wc -l)" -le 8 ] || fail 'more than eight files'
for part in gpu-build.json gpu-first.md cache/times.txt; do
    [ "$(tar -tJf "$work/first/gpu-first.tar.xz" | grep -c "^\./$part\$")" = 1 ] || fail "the archive holds no $part"
done
has results/gpu-test.json '"complete": true'
for precision in fp32 tf32 fp16 bf16; do
    has results/gpu-test.md "^| $precision on cuda:0 against fp32 on cpu | passed |"
done
has results/gpu-test.md '^| saved on cuda:0, resumed on cpu (fp32) | passed |'
has results/gpu-test.md '^| saved on cpu, resumed on cuda:0 (fp32) | passed |'
has results/gpu-test.md '^| bf16 twice on cuda:0 | passed |'
has results/gpu-test.md '^| ssd320, fp16 on cuda:0 against fp32 on cpu | passed |'
mkdir "$work/tools" # GPU memory in use is what nvidia-smi says
cat >"$work/tools/nvidia-smi" <<'END'
#!/bin/sh
for used in 100 2345 17; do echo $used; done
exec sleep 60
END
chmod +x "$work/tools/nvidia-smi"
PATH=$work/tools:$PATH expect 0 bench "$work/results" --quick
has results/gpu-bench.json '"gpu_memory_mib": 2345'
has results/gpu-bench.md '^| what this GPU can do | fp16 |  | .* TFLOP/s in '
has results/gpu-bench.json '"complete": true'
has results/gpu-bench.json '"images_per_second"'
has results/gpu-bench.md '^| train resnet18 | fp16 | 2 | [0-9]'
has results/gpu-bench.md '^| train resnet18 from JPEG of 40 px | fp16 | 5 | [0-9]'
has results/gpu-bench.md '^| loader on the GPU |  |  | convoy: nvJPEG 12 or newer is not there'
# No time left: everything is named as not reached, and the files are whole.
expect 0 bench "$work/late" --quick --seconds 0
has late/gpu-bench.json '"complete": false'
has late/gpu-bench.md 'not reached'
expect 0 test "$work/late" --quick --seconds 0
has late/gpu-test.json '"result": "not reached"'
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys
for path in sys.argv[1:]:
    json.load(open(path))' "$work"/results/*.json "$work"/late/*.json
fi

# A device that computes something else fails: here, runs whose steps are twenty times as long, and runs that end otherwise
# than others did.
mkdir "$work/wrong"
cat >"$work/wrong/convoy" <<'END'
#!/bin/sh
case " $* " in
*/fp32.csv* | */from-cpu.csv* | */again-bf16.csv*)
    for argument in "$@"; do
        [ "$argument" != 0.02 ] || argument=0.4
        set -- "$@" "$argument"
        shift
    done
    ;;
esac
exec "$CONVOY_RIGHT" "$@"
END
chmod +x "$work/wrong/convoy"
CONVOY_RIGHT=$CONVOY_BUILD/convoy CONVOY_BUILD=$work/wrong expect 1 test "$work/wrong-results" --quick --device cpu
has wrong-results/gpu-test.md '^| fp32 on cpu against fp32 on cpu | failed |'
if grep -q 'precision bf16 needs a CPU with AVX-512' "$work/wrong-results/gpu-test.md"; then
    echo "this CPU has no bf16: its rows are not looked at"
else
    has wrong-results/gpu-test.md '^| bf16 on cpu against fp32 on cpu | passed |'
    has wrong-results/gpu-test.md '^| bf16 twice on cpu | failed |'
fi
has wrong-results/gpu-test.md '^| saved on cpu, resumed on cpu (fp32) | failed |'
