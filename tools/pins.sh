#!/usr/bin/env bash
# Renews tools/constraints.txt with the newest of all that pyproject.toml asks for.
# What a test run is made of changes by a commit then, never because somebody released something.
set -eu

python=$1
rm -rf build/pins
"$python" -m venv build/pins
"$python" tools/requirements.py > build/pins/requirements.txt
build/pins/bin/python -m pip install -qq --disable-pip-version-check -r build/pins/requirements.txt
{
    echo "# The versions that gridstat is developed and tested with, written by \`make pins\`."
    echo "# Who installs gridstat as a library is bound by pyproject.toml alone."
    build/pins/bin/python -m pip freeze --all --disable-pip-version-check | grep -v '^pip=='
} > build/pins/constraints.txt
mv build/pins/constraints.txt tools/constraints.txt
