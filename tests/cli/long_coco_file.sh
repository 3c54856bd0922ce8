#!/bin/bash
# A COCO file as large as that of COCO's training images: read in 15 s and 1 GiB.
. "$(dirname "$0")/support_common.sh"
. "$sources/tests/cli/support_coco_file.sh"
read_generated 1 118288 860001 15 1024
finish
