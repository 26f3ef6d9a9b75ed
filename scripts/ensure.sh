# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Sourced by the scripts: `ensure g++ cmake …` installs what is missing, or says how. Silent when nothing is.
# shellcheck shell=sh

# Is this tool or library here, and new enough?
have() {
  case $1 in
    g++ | clang++) echo 'int main() {}' | "$1" -std=c++20 -x c++ - -fsyntax-only 2>/dev/null ;;
    cmake)
      v=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 * 1000 + \2/p')
      [ $((${v:-0})) -ge 3025 ] ;;
    ninja) ninja --version >/dev/null 2>&1 ;;
    doctest) echo '#include <doctest/doctest.h>' | g++ -std=c++20 -x c++ - -E >/dev/null 2>&1 ;;
    sanitizers-of-clang) echo 'int main() {}' | clang++ -fsanitize=address -x c++ - -o /dev/null 2>/dev/null ;;
    benchmark) echo '#include <benchmark/benchmark.h>' | g++ -std=c++20 -x c++ - -E >/dev/null 2>&1 ;;
    mpi) command -v mpicxx >/dev/null && command -v mpirun >/dev/null ;;
    tc) command -v ip >/dev/null && command -v tc >/dev/null ;;
  esac
}

# What Debian and its kin call it.
package_of() {
  case $1 in
    clang++) echo clang ;;
    sanitizers-of-clang) echo libclang-rt-dev ;;
    ninja) echo ninja-build ;;
    doctest) echo doctest-dev ;;
    benchmark) echo libbenchmark-dev ;;
    mpi) echo openmpi-bin libopenmpi-dev ;;
    tc) echo iproute2 ;;
    *) echo "$1" ;;
  esac
}

ensure() {
  missing='' packages=''
  for tool in "$@"; do
    have "$tool" || { missing="$missing $tool"; packages="$packages $(package_of "$tool")"; }
  done
  [ -n "$missing" ] || return 0
  echo "Missing:$missing (cmake must be 3.25 or newer, compilers must know C++20)"
  if ! command -v apt-get >/dev/null; then
    echo "Install them with this system's package manager, then run this again. Debian's names are:$packages"
    exit 1
  fi
  install="apt-get install -y --no-install-recommends$packages"
  if [ "$(id -u)" != 0 ]; then
    echo "Run this, then this script again:"
    echo "  sudo apt-get update && sudo $install"
    exit 1
  fi
  echo "Installing:$packages"
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  # The list of packages may be absent or old: it is fetched only when the install fails without.
  $install >"$log" 2>&1 || { apt-get update >"$log" 2>&1 && $install >>"$log" 2>&1; } || {
    cat "$log"
    echo "That failed. The line was: apt-get update && $install"
    exit 1
  }
  rm -f "$log"
  for tool in $missing; do
    have "$tool" || { echo "The $(package_of "$tool") of this system is too old; install a newer $tool by hand."; exit 1; }
  done
}

# One job per processor, for the builds and tests that follow.
processors=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$processors}"
