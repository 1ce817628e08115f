# shellcheck shell=bash
# Sourced by ./demo and ./check: finds a Python and makes a virtual environment in the checkout. Needs no root.

# Print the first Python of at least 3.11 ($PYTHON, when set, is the only one tried).
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "error: no Python of at least 3.11 found" >&2
    echo "  fix:   install python3.11 or newer, or set PYTHON to its path" >&2
    return 2
}

# make_environment FOLDER: a virtual environment with a pip that knows dependency groups.
make_environment() {
    local folder=$1 python
    if [[ ! -x $folder/bin/python ]]; then
        python=$(find_python)
        if ! "$python" -m venv "$folder"; then
            rm -rf "$folder"
            echo "error: $python cannot make a virtual environment" >&2
            echo "  fix:   install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2
            return 2
        fi
    fi
    if ! "$folder/bin/python" -c 'import pip; raise SystemExit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))'; then
        "$folder/bin/python" -m pip install -qq --upgrade 'pip>=25.1'
    fi
}
