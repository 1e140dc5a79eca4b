# scripts.sh - shellcheck has nothing to say about our scripts.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "${TEST_SOURCE_DIR:?}"

if ! command -v shellcheck >/dev/null; then
    echo "shellcheck is missing"
    exit 77
fi
scripts=()
while IFS= read -r -d '' file; do
    case $file in
        *.sh) scripts+=("$file") ;;
        *) ! head -c 64 "$file" | head -1 | grep -aqE '^#!.*\b(ba)?sh\b' || scripts+=("$file") ;;
    esac
done < <(find . \( -path ./build -o -path ./.git \) -prune -o -type f \( -name '*.sh' -o ! -name '*.*' \) -print0)
shellcheck --shell=bash --external-sources "${scripts[@]}"
