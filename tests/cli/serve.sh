#!/bin/bash
# convoy serve: a classifier and a detector that answer many at once, in every form, refuse what is wrong with a sentence,
# and end when everything that came is answered.
. "$(dirname "$0")/support_common.sh"
command -v python3 >/dev/null || skip "no python3, which asks the server"
expect 2 "$convoy" serve
"$convoy" serve no-such-file 2>err
if grep -q "libmicrohttpd" err; then
    skip "no libmicrohttpd"
fi
narrow
export CONVOY_KERNELS=first # the same ones in every process
client() { python3 "$sources/tests/cli/support_serve.py" "$@"; }
make_shapes data 2 1
expect 0 tiny_train data --workspace run --steps 2
expect 0 "$convoy" -q dataset shapes boxes --boxes --train-images 2 --val-images 3 --image-size 96 --classes 3
expect 0 "$convoy" -q train boxes --arch ssd320 --image-size 64 --batch-size 2 --steps 2 --warmup-steps 1 --lr 0.002 \
    --warmup-lr 0.001 --workspace found
weights=run/checkpoint.safetensors

# ---- what is refused before anything listens ----
expect_sentence 2 'serve needs --weights FILE' "$convoy" serve
expect_sentence 66 'missing' "$convoy" -q serve --weights missing.safetensors --port 0
echo text >text
expect_sentence 65 'text' "$convoy" -q serve --weights tests=text --port 0
expect_sentence 2 'two networks are called "checkpoint": NAME=FILE gives one another name' \
    "$convoy" -q serve --weights $weights found/checkpoint.safetensors --port 0
expect_sentence 2 '"a b" cannot name a network' "$convoy" -q serve --weights "a b=$weights" --port 0
expect_sentence 2 'option --max-batch-size' "$convoy" -q serve --weights $weights --max-batch-size 0
expect_sentence 69 'no\.such\.host' "$convoy" -q serve --weights $weights --port 0 --bind no.such.host

# What is loading does not hold up who has seen enough.
checks=$((checks + 1))
"$convoy" -q serve --weights $weights --max-batch-size 2048 --port 0 >server.out 2>server.err &
loading=$!
sleep 0.2
kill -TERM $loading
wait $loading
[ $? = 143 ] && [ ! -s server.out ] || fail "SIGTERM does not end a server that is loading: $(cat server.out server.err)"

# ---- a server ----
start() { # OPTIONS...: $server is its process, $address where it listens
    "$convoy" serve --port 0 "$@" >server.out 2>server.err &
    server=$!
    for _ in $(seq 1200); do
        grep -q '^listening on ' server.out && break
        kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    address=$(sed -n 's/^listening on //p' server.out)
    [ -n "$address" ] || { fail "the server does not start: $(cat server.err)"; finish; }
}
stop() { # SIGNAL: the server ends with 0 and has said nothing but what it serves
    checks=$((checks + 1))
    kill -"$1" $server
    wait $server || fail "the server ended with $? after $1: $(cat server.err)"
}
trap 'kill -9 "${server:-none}" 2>/dev/null; [ -n "${CONVOY_TEST_KEEP:-}" ] || rm -rf "$work"' EXIT

start --weights shapes=$weights --weights found/checkpoint.safetensors
expect_text server.err '^shapes classifies$'
expect_text server.err '^checkpoint detects$'
expect_sentence 69 "cannot listen at port ${address##*:}" "$convoy" -q serve --weights $weights --port "${address##*:}"

# More addresses than one, and one of IPv6, where there is such a thing.
if grep -q '^0*1 ' /proc/net/if_inet6 2>/dev/null; then
    first=$server taken=$address
    start --weights shapes=$weights --bind ::1
    expect_text server.out '^listening on http://\[::1\]:[0-9]*$'
    expect 0 client "$address" alive /dev/null /dev/null
    stop TERM
    server=$first address=$taken
fi

# The answers are those of the other verbs.
images=(data/val/*/*.jpg)
expect 0 "$convoy" classify "${images[@]}" --weights $weights --format json --logits --topk 10 --batch-size 1
cp out classified.json
expect 0 "$convoy" detect boxes/val/*.jpg --weights found/checkpoint.safetensors --format json --threshold 0 --batch-size 1
cp out detected.json
for part in pages answers protocol refusals together; do
    expect 0 client "$address" $part classified.json detected.json
done
stop TERM

# ---- little room: what does not fit is told to come again ----
start --weights shapes=$weights --max-batch-size 4 --max-queue-size 2 --max-request-size 1 --max-queue-delay 300000
expect 0 client "$address" crowd classified.json detected.json
# Asked to end while requests wait: all of them are answered.
expect 0 client "$address" ending classified.json detected.json $server
checks=$((checks + 1))
wait $server || fail "the server ended with $? when it was asked to: $(cat server.err)"
finish
