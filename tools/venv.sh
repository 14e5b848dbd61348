# !/bin/sh Creates the environment in $1. Installs missing system packages on Debian where it can, and otherwise says in
# one line what to install.
set -eu
venv=$1
python=${PYTHON:-python3}

fail() { echo "headrace: $1" >&2; exit 1; }
debian() { # install Debian packages if this is a Debian machine and we may
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then sudo=; elif sudo -n true 2>/dev/null; then sudo="sudo -n"; else return 1; fi
    echo "headrace: installing $* from Debian's packages" >&2
    $sudo apt-get -qq update >/dev/null 2>&1 || true
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$@" >/dev/null
}

command -v "$python" >/dev/null 2>&1 || debian python3 || fail "needs Python 3.11 or newer: install it, or name it with PYTHON=..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "needs Python 3.11 or newer, $python is $($python -V 2>&1): name another with PYTHON=..."
if [ ! -x "$venv/bin/pip" ]; then
    "$python" -m venv "$venv" >/dev/null 2>&1 || { debian python3-venv && "$python" -m venv "$venv"; } \
        || fail "needs Python's venv module: install the package python3-venv"
fi
echo "headrace: setting up $venv (a minute, once)" >&2
if ! { command -v cc && "$python" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'; } >/dev/null 2>&1; then
    debian gcc python3-dev || echo "headrace: no C compiler: headrace will run in slower, pure Python" >&2
fi
java=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
if [ "${java:-0}" -lt 17 ]; then
    debian openjdk-17-jre-headless || echo "headrace: Spark needs Java 17 or newer: install openjdk-17-jre-headless" >&2
fi
"$venv/bin/python" -m pip -q --disable-pip-version-check install -c constraints.txt -e '.[dev,spark]'
# Spark's declarative pipelines need pandas, which nothing else may use: it is installed in its own folder.
wanted=examples/declarative/requirements.txt
if ! cmp -s "$wanted" "$venv/declarative/requirements.txt"; then
    rm -rf "$venv/declarative"
    "$venv/bin/python" -m pip -q --disable-pip-version-check install --target "$venv/declarative" -r "$wanted"
    cp "$wanted" "$venv/declarative/"
fi
