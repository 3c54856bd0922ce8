#!/bin/bash
# A generated COCO file with outlines is read whole and in bounds: a hundredth of COCO's here, all of it in
# long_coco_file.sh.
. "$(dirname "$0")/support_common.sh"
narrow
. "$sources/tests/cli/support_coco_file.sh"
read_generated 0.01 1183 8600 30 256
finish
