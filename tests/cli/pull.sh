#!/bin/bash
# convoy pull: published weights from a server on the loopback that does what good and bad servers do.
. "$(dirname "$0")/support_common.sh"

command -v python3 >/dev/null || skip "no python3, which serves the files"
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY CONVOY_WEIGHTS_URL
export no_proxy='*' CONVOY_CACHE_DIR=$work/cache
cache=$work/cache/weights

# Weights of the network that a row is of, as a row without a sum has them.
make_shapes data 1 1
expect 0 tiny_train data --workspace run --steps 1
mkdir served
name=resnet18.a1_in1k
file=$name.safetensors
# In half of the bytes: a bf16 is the upper half of a float.
expect 0 python3 -c '
import json, struct, sys
data = open("run/model_best.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body, parts = json.loads(data[8 : 8 + size]), data[8 + size :], []
for name, tensor in header.items():
    if name == "__metadata__":
        continue
    begin, end = tensor["data_offsets"]
    values = body[begin:end]
    if tensor["dtype"] == "F32":
        half = bytearray(len(values) // 2)
        half[0::2], half[1::2] = values[2::4], values[3::4]
        tensor["dtype"], values = "BF16", bytes(half)
    at = sum(map(len, parts))
    tensor["data_offsets"] = [at, at + len(values)]
    parts.append(values)
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))
' "served/$file"
size=$(stat -c %s "served/$file")

expect 0 "$convoy" pull # without a server: nothing is asked for
expect_text out '^resnet50\.tv_in1k +resnet50 +97\.8 +76\.13 +BSD-3-Clause'
expect 0 "$convoy" pull --format json
cp out list
expect 0 python3 -c '
import json, re, sys
rows = json.load(open("list"))
names = [row["name"] for row in rows]
assert len(set(names)) == len(names) >= 25 and len({row["file"] for row in rows}) == len(rows)
for row in rows:
    assert row["url"].startswith("https://") and row["page"].startswith("https://") and row["path"] is None, row
    assert row["sha256"] is None or (re.fullmatch("[0-9a-f]{8}|[0-9a-f]{64}", row["sha256"])), row
    # What the published name carries is what is compared.
    carried = re.search("-([0-9a-f]{8})[.]pth$", row["url"])
    assert (carried.group(1) if carried else None) == row["sha256"], row
'

exec 8< <(exec python3 "$sources/tests/cli/support_pull_server.py" "$work/served" "$work/log" 2>"$work/server.err")
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r -t 20 port <&8 || { fail "the server does not start"; finish; }
mirror() { export CONVOY_WEIGHTS_URL=http://127.0.0.1:$port/$1; }
requests() { grep -c "^/$1/" log; }
nothing_left() {
    checks=$((checks + 1))
    [ -z "$(find "$cache" -type f ! -name '*.lock' 2>/dev/null)" ] || fail "files are left: $(ls "$cache")"
}

# Before they are pulled a name is no file; the sentence says how to get it. Nothing is downloaded unasked.
mirror range
expect_sentence 66 "convoy pull $name\" downloads" "$convoy" classify data/val --weights "$name"
expect_sentence 66 'convoy pull resnet18.tv_in1k' "$convoy" classify data/val --weights resnet18
expect_sentence 66 "convoy pull $name" tiny_train data --workspace run2 --pretrained-weights "$name" --reset-head
[ ! -e log ] || fail "something was asked for without being told to"

# A name that is none.
expect_sentence 2 'perhaps resnet50' "$convoy" pull resnet5O
expect_sentence 2 'CONVOY_WEIGHTS_URL is the address' env CONVOY_WEIGHTS_URL=somewhere "$convoy" pull "$name"

# As it should be, and at once the second time.
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
[ "$(cat out)" = "$cache/$file" ] || fail "the path is not printed"
expect_text err 'no checksum of it is published'
expect 0 "$convoy" pull "$name"
expect_text err 'was here already'
[ "$(requests range)" = 1 ] || fail "what is there was asked for again"
expect 0 "$convoy" pull --format json "$name"
expect_text out '"downloaded": 0'
expect 0 "$convoy" pull
expect_text out "^$name .*\(here\)$"
expect 0 "$convoy" pull --again "$name"
[ "$(requests range)" = 2 ] || fail "--again did not ask"
[ "$(find "$cache" -type f ! -name '*.lock' | wc -l)" = 1 ] || fail "more than the file is there: $(ls "$cache")"

# A run that starts from them is planned as the same file by its path is.
expect 0 "$convoy" train data --pretrained-weights "$cache/$file" --reset-head --dry-run
grep -v '^pretrained-weights ' out >by_path
expect 0 "$convoy" train data --pretrained-weights "$name" --reset-head --dry-run
grep -v '^pretrained-weights ' out >by_name
expect_same by_path by_name
grep -q 'is not there' err && fail "pulled weights are not there for --dry-run"

# Pulled weights by their name and by that of the network, in all verbs; a file of that name comes first.
expect 0 "$convoy" classify data/val --weights "$name" --format json
cp out named
expect 0 "$convoy" classify data/val --weights resnet18 --format json
expect_same named out
expect 0 "$convoy" info "$name"
expect_text out 'resnet18'
expect 0 tiny_train data --workspace run2 --steps 1 --pretrained-weights resnet18 --reset-head
touch "$name"
expect_sentence 65 'is empty' "$convoy" classify data/val --weights "$name"
rm "$name"

again() { # HABIT: from the beginning
    rm -rf "$cache"
    mirror "$1"
}

# Servers without Range; a folder; redirections; busy ones; those that state a sum.
again plain
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
again moved
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
again busy
expect 0 "$convoy" pull "$name"
[ "$(requests busy)" = 3 ] || fail "a busy server was not asked again"
again linked
expect 0 "$convoy" pull "$name"
expect_text err 'its SHA-256 is the one that the server states'
# Who comes second waits, longer than for other locks, and finds what the first has pulled.
rm -f "$cache/$file"
(flock 9; sleep 2.5; cp "served/$file" "$cache/$file") 9>"$cache/$file.lock" &
first=$!
sleep 0.2
before=$(wc -l <log)
expect 0 "$convoy" pull "$name"
expect_text err 'was here already'
[ "$(wc -l <log)" = "$before" ] || fail "what another process has pulled was asked for again"
wait "$first"
rm -rf "$cache"
expect 0 env CONVOY_WEIGHTS_URL="file://$work/served/" "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"

# A connection that is cut is taken up again where it ended, in the same call and in the next one.
again cutonce
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
expect_text log "^/cutonce/.* bytes=$((size / 2))- \"$size\" 206"
# As often as it takes, while anything more comes.
again cut
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
again cutplain
expect_sentence 66 'cannot download' timeout 60 "$convoy" pull "$name"
[ "$(requests cutplain)" = 5 ] || fail "a server that always sends the same half was asked $(requests cutplain) times"
again slow
expect 75 timeout --foreground --preserve-status -s INT 0.7 "$convoy" pull "$name"
expect_text err 'same call continues'
have=$(stat -c %s "$cache/$file.part")
[ "$have" -gt 0 ] && [ "$have" -lt "$size" ] || fail "$have bytes are kept"
[ ! -e "$cache/$file" ] || fail "a part has the final name"
mirror range # another address: nothing says that it is the same file
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
expect_text log "^/range/.* - - 200"
again slow
expect 75 env CONVOY_WEIGHTS_URL="http://user:secret@127.0.0.1:$port/slow" \
    timeout --foreground --preserve-status -s INT 0.7 "$convoy" pull "$name"
! grep -r secret "$cache" || fail "a password is written beside the part"
have=$(stat -c %s "$cache/$file.part")
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
expect_text log "^/slow/.* bytes=$have- \"$size\" 206"
[ "$(find "$cache" -type f ! -name '*.lock' | wc -l)" = 1 ] || fail "more than the file is there: $(ls "$cache")"
# Everything was there, but for the name.
again range
mkdir -p "$cache"
cp "served/$file" "$cache/$file.part"
printf '%s\n"%s"\n\n' "$CONVOY_WEIGHTS_URL/$file" "$size" >"$cache/$file.part.from"
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
expect_text log "^/range/.* bytes=$size- \"$size\" 416"
# The file changed meanwhile: all of it comes anew. Rubbish that is longer is no beginning either.
again changing
mkdir -p "$cache"
head -c 100000 /dev/zero >"$cache/$file.part"
printf '%s\n"old"\n\n' "$CONVOY_WEIGHTS_URL/$file" >"$cache/$file.part.from"
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"
again range
mkdir -p "$cache"
head -c $((size + 1)) /dev/zero >"$cache/$file.part"
printf '%s\n"%s"\n\n' "$CONVOY_WEIGHTS_URL/$file" "$size" >"$cache/$file.part.from"
expect 0 "$convoy" pull "$name"
expect_same "$cache/$file" "served/$file"

# What goes wrong is a sentence, and no file.
again range
expect_sentence 66 'the server answers 404 \(there is no such file\)' "$convoy" pull resnet34.a1_in1k
nothing_left() { [ -z "$(find "$cache" -type f ! -name '*.lock' ! -size 0 2>/dev/null)" ] || fail "files are left: $(ls "$cache")"; }
nothing_left
again round
expect_sentence 66 'redirect' "$convoy" pull "$name"
nothing_left
for habit in insecure tofile; do
    again $habit
    expect_sentence 66 'cannot download' "$convoy" pull "$name"
    nothing_left
done
again large
expect_sentence 65 'larger than the 2147483648 bytes' "$convoy" pull "$name"
nothing_left
again wronglink
expect_sentence 65 'instead of 0000000000000000' "$convoy" pull "$name"
nothing_left
again empty
expect_sentence 65 'cannot be used, and nothing is kept' "$convoy" pull "$name"
nothing_left
again page
expect_sentence 65 'cannot be used, and nothing is kept' "$convoy" pull "$name"
nothing_left
again wrongpart
mkdir -p "$cache"
head -c 100000 "served/$file" >"$cache/$file.part"
printf '%s\n"%s"\n\n' "$CONVOY_WEIGHTS_URL/$file" "$size" >"$cache/$file.part.from"
expect 0 "$convoy" pull "$name" # the part is given up
expect_same "$cache/$file" "served/$file"
# The table's own sum: other weights under the name of torchvision's.
again range
cp "served/$file" served/resnet18.tv_in1k.pth
expect_sentence 65 'instead of f37072fd' "$convoy" pull resnet18
nothing_left
# Of another network.
cp "served/$file" served/resnet50.a1_in1k.safetensors
expect_sentence 65 'cannot be used' "$convoy" pull resnet50.a1_in1k
nothing_left
kill "$server"
wait "$server" 2>/dev/null
expect_sentence 66 'cannot download .http://127.0.0.1' "$convoy" pull "$name"
# Passwords in an address are not printed.
expect_sentence 66 '"http://127.0.0.1' env CONVOY_WEIGHTS_URL="http://user:secret@127.0.0.1:$port/range" "$convoy" pull "$name"
! grep -q secret err || fail "a password is printed"
expect_sentence 66 "Couldn't|cannot download" env CONVOY_WEIGHTS_URL="file://$work/nowhere" "$convoy" pull "$name"
# A proxy of the environment is asked.
expect_sentence 66 'cannot download' env -u no_proxy http_proxy=http://127.0.0.1:9 CONVOY_WEIGHTS_URL=http://weights.invalid \
    "$convoy" pull "$name"
expect_text err 'connect'
expect_sentence 73 'cannot create' env CONVOY_CACHE_DIR=/dev/null/here "$convoy" pull "$name"
expect_sentence 66 'no folder for the cache' env -u CONVOY_CACHE_DIR -u XDG_CACHE_HOME -u HOME "$convoy" pull "$name"
mkdir -p xdg/convoy
expect_sentence 66 'cannot download' env -u CONVOY_CACHE_DIR XDG_CACHE_HOME="$work/xdg" "$convoy" pull "$name"
[ -d xdg/convoy/weights ] || fail "the cache is not where XDG_CACHE_HOME says"
finish
