#!/bin/bash
# Makes the environment of bench/peers.py: a virtual environment with PyTorch, ONNX Runtime and OpenVINO, outside the tree.
#
#   CONVOY_PEERS=DIR bench/peers-setup.sh        (default: ~/.cache/convoy-peers)
#
# Packages come from wherever the user's pip is set up to look. Where that offers PyTorch for GPUs only, PyTorch is
# installed without the gigabytes of libraries behind it; of these only those follow that it cannot be imported without and
# that the system does not have. On a CPU none of them is ever called.
set -euo pipefail
folder=${CONVOY_PEERS:-$HOME/.cache/convoy-peers}
[ -x "$folder/bin/python" ] || "${PYTHON:-python3}" -m venv "$folder"
python=$folder/bin/python
"$python" -m pip install --quiet --upgrade numpy onnx onnxruntime openvino setuptools
"$python" -c 'import torch, torchvision' 2>/dev/null || "$python" - <<'END'
import json
import re
import subprocess
import sys


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


def problem():
    """Why torch cannot be imported; empty: it can."""
    done = subprocess.run([sys.executable, "-c", "import torch, torchvision"], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr


plan = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-", "torch",
                       "torchvision"], check=True, capture_output=True, text=True).stdout
wanted = {p["metadata"]["name"].lower(): p["metadata"]["version"] for p in json.loads(plan[plan.index("{"):])["install"]}
for_gpu = sorted(name for name in wanted if re.match("nvidia-|cuda-|triton", name))
if not any(name.startswith("nvidia-") for name in for_gpu):
    pip("torch", "torchvision")
    sys.exit()
small = [f"{name}=={version}" for name, version in wanted.items() if name not in for_gpu]
pip("--no-deps", *small)
left = list(for_gpu)
while left and (text := problem()):
    # "libcufile.so.0: cannot open ...", "undefined symbol: ncclCommResume", "libnvshmem...: version ... not found"
    words = text.strip().splitlines()[-1].lower()
    found = [name for name in left if re.sub("^nvidia-|-cu[0-9]+$", "", name).split("-")[-1] in words]
    if not found:
        found = [name for name in left if name == "nvidia-cuda-runtime" and "cudart" in words]
    if not found:
        sys.exit(f"torch cannot be imported: {words}")
    left.remove(found[0])
    print(f"torch needs {found[0]}", file=sys.stderr)
    pip("--no-deps", f"{found[0]}=={wanted[found[0]]}")
if text := problem():
    sys.exit(text)
END
"$python" - <<'END'
import onnxruntime, openvino, torch, torchvision
print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, onnxruntime {onnxruntime.__version__}, "
      f"openvino {openvino.__version__}")
END
echo "bench/peers.py uses it: $folder"
