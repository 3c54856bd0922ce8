# Sourced by the long scripts whose references come from PyPI.
#
# find_python [MODULE:]PACKAGE[==VERSION]...: sets $python to an interpreter that has the modules: CONVOY_PYTHON, the system's, or
# a virtual environment over the system's packages in the build folder, into which the missing ones are installed. The
# script ends as skipped (in CI: as failed) where that is not possible.
find_python() {
    local imports candidate environment=$CONVOY_BUILD/python
    imports="import $(printf '%s\n' "${@%%[:=<>]*}" | paste -sd,)"
    for candidate in "${CONVOY_PYTHON:-}" /usr/bin/python3 "$environment/bin/python"; do
        python=$candidate
        [ -n "$python" ] && "$python" -c "$imports" 2>/dev/null && return
    done
    if [ ! -x "$environment/bin/python" ]; then
        /usr/bin/python3 -m venv --system-site-packages "$environment" >&2
    fi
    python=$environment/bin/python
    "$python" -m pip install --quiet "${@##*:}" >&2
    "$python" -c "$imports" && return
    echo "skipped: $* could not be installed"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
}
