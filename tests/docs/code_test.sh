# code_test.sh - the programs in the documentation print what stands behind them; see code.py.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

if ! command -v python3 >/dev/null; then
    echo "python3 is missing"
    exit 77
fi
exec python3 -B "${TEST_SOURCE_DIR:?}/tests/docs/code.py"
