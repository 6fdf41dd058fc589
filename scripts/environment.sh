# Virtual environments of this checkout; sourced by check, test and demo.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
me=${0##*/}

say() { echo "$me: $*" >&2; }
die() { say "$@"; exit 1; }

# is_python COMMAND CONDITION: does it run, and does CONDITION hold for its version? pyenv's shims exist without running.
is_python() { "$1" -c "import sys; version = sys.version_info[:2]; sys.exit(not ($2))" 2>/dev/null; }

# find_python 3.12: print the path of an interpreter of this version, from PATH or from pyenv.
find_python() {
  local candidate
  for candidate in "python$1" python3 python "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1."*/bin/python; do
    if is_python "$candidate" "version == (${1/./, })"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# any_python: print the path of the oldest interpreter that nimbusq supports.
any_python() {
  local version
  for version in 3.11 3.12 3.13 3.14; do
    if find_python "$version"; then return; fi
  done
  die "needs Python 3.11 or later on PATH; Debian has it as: apt-get install python3 python3-venv"
}

# make_venv FOLDER PYTHON: Debian's Python comes without ensurepip, in a package of its own.
make_venv() {
  local python=$2
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    local package
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    ((EUID == 0)) || die "$python cannot make environments; as root: apt-get install $package"
    say "apt-get install $package"
    apt-get -qq update >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$package" >/dev/null
  fi
  "$python" -m venv --clear "$1"
  "$1/bin/python" -m pip --quiet --disable-pip-version-check install --upgrade 'pip>=25.1' # knows --group
}

# environment FOLDER PYTHON PIP-ARGUMENT...: a virtual environment with this checkout in it.
# It is made once and renewed when pyproject.toml, the interpreter or the arguments have changed.
environment() {
  local folder=$1 python=$2 wanted
  shift 2
  wanted=$("$python" -V; echo "$@"; cksum <"$root/pyproject.toml")
  mkdir -p "$root/.venvs"
  exec 7>"$root/.venvs/${folder##*/}.lock"
  flock 7 # two scripts may want the same one
  if [[ ! -e $folder/complete || $(<"$folder/complete") != "$wanted" ]]; then
    say "installing into ${folder#"$root/"} ($("$python" -V))"
    # Removed dependencies stay in one that is renewed; a fresh checkout, as in CI, has none.
    if [[ $("$folder/bin/python" -V 2>/dev/null) != "$("$python" -V)" ]]; then make_venv "$folder" "$python"; fi
    (cd "$root" && "$folder/bin/python" -m pip --quiet --disable-pip-version-check install "$@")
    echo "$wanted" >"$folder/complete"
  fi
  exec 7>&-
}
