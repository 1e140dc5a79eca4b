# progress_test.sh - what `fiber run` waits for, on a terminal; see progress.py.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

if ! command -v python3 >/dev/null; then
    echo "python3 is missing"
    exit 77
fi
PATH=${TEST_BINARY_DIR:?}/tests/mock:$PATH
XDG_RUNTIME_DIR=$(mktemp -d)
export XDG_RUNTIME_DIR
trap 'rm -rf "$XDG_RUNTIME_DIR" || :' EXIT
python3 -B "${TEST_SOURCE_DIR:?}/tests/cli/progress.py"
