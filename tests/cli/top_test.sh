# top_test.sh - `fiber top` on a terminal: what is on its screen while a run goes on; see top.py.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

if ! command -v python3 >/dev/null; then
    echo "python3 is missing"
    exit 77
fi
PATH=${TEST_BINARY_DIR:?}/cli:$PATH
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR" || :' EXIT
python3 -B "${TEST_SOURCE_DIR:?}/tests/cli/top.py"
