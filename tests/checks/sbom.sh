#!/bin/sh
# convoy.cdx.json is JSON of CycloneDX's form and names every library that libconvoy is linked with, each with a version.
set -eu
build=${CONVOY_BUILD:?the build folder}
bill=$build/convoy.cdx.json
result=0
python3 - "$bill" <<'PY' || result=1
import json, re, sys
bill = json.load(open(sys.argv[1]))
assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5", bill
assert re.fullmatch(r"\d+\.\d+\.\d+", bill["metadata"]["component"]["version"]), bill["metadata"]
references = [c["bom-ref"] for c in bill["components"]]
assert references and len(set(references)) == len(references), references
for component in bill["components"]:
    assert component["type"] == "library" and re.fullmatch(r"\d[\d.]*", component["version"]), component
    assert component["licenses"][0]["expression"], component
PY
needed=$(LC_ALL=C readelf -d "$build"/libconvoy.so.0 | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "FAILED: the library is linked with nothing"; exit 1; }
for library in $needed; do
    case $library in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | ld-linux*) continue ;; # the system's C library
    esac
    grep -q "\"value\": \"${library%.so*}.so\"" "$bill" || {
        echo "FAILED: $bill does not name $library"
        result=1
    }
done
exit $result
