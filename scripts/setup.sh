# Sourced by ./run, ./test and the scripts beside it; the working directory is the root of the repository.
#
#   cairn_need PACKAGE...       installs the Debian packages that are missing; the whole list is docs/dependencies.md's
#   cairn_fetch_nvcc            fetches the CUDA compiler into build/cuda, when the machine has none
#   cairn_configure PRESET      makes build/PRESET, when there is none or the presets changed
#   cairn_build PRESET TARGET...
#   cairn_quietly LOG COMMAND   runs it with its output in LOG, whose last line is shown while it runs on a terminal
#
# Each says what went wrong, with the log of the command that failed, and returns non-zero.

# Everything that configuring and building the presets takes. ./run takes the same list as ./test: both use one build
# tree, which is configured with its tests.
CAIRN_PACKAGES=(g++ cmake ninja-build pkgconf python3 libssl-dev libxxhash-dev libcli11-dev nlohmann-json3-dev
  zlib1g-dev liburing-dev libtomlplusplus-dev libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  clang-format-19 python3-pip)
# What compiles the GPU kernels: exact wheels with their hashes.
CAIRN_CUDA_WHEELS=scripts/cuda-wheels.txt
# What only running ./test takes.
CAIRN_TEST_PACKAGES=(chromium-headless-shell)
CAIRN_JOBS=${CAIRN_JOBS:-$(nproc)}

cairn_quietly() {
  local log=$1 watcher='' status
  shift
  mkdir -p "$(dirname "$log")"
  : >"$log"
  if [ -t 1 ]; then
    cairn_watch "$log" &
    watcher=$!
  fi
  "$@" >"$log" 2>&1 </dev/null
  status=$?
  if [ -n "$watcher" ]; then
    kill "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null
    printf "\r\033[K"
  fi
  return $status
}

# The last line of a log, over and over, until killed or until the script is gone.
cairn_watch() {
  local width line
  width=$(tput cols 2>/dev/null || echo 80)
  while kill -0 $$ 2>/dev/null; do
    line=$(tail -n 1 "$1" 2>/dev/null | tr -d '\r\033')
    printf '\r\033[K%s' "  ${line:0:width-3}"
    sleep 0.3
  done
}

cairn_need() {
  local missing command=() words
  if ! command -v dpkg-query >/dev/null; then
    for words in g++ cmake ninja python3; do
      command -v "$words" >/dev/null && continue
      echo "$words is missing, and this is not a Debian system. Install what these Debian packages hold: $*" >&2
      return 1
    done
    return 0
  fi
  missing=$(comm -23 <(printf '%s\n' "$@" | sort) \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort))
  [ -n "$missing" ] || return 0
  # shellcheck disable=SC2206 # package names are words
  missing=($missing)

  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
      command=(sudo)
    else
      echo "Packages are missing, and installing them takes root or sudo. Run as root, then try again:" >&2
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "Installing ${missing[*]}" >&2
  command+=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  cairn_quietly build/setup.log "${command[@]}" update &&
    cairn_quietly build/setup.log "${command[@]}" install -y --no-install-recommends "${missing[@]}" && return 0
  cat build/setup.log >&2
  echo "apt-get failed; its output is above and in build/setup.log" >&2
  return 1
}

# Without it the library has no kernels and everything else works: no reason to stop.
cairn_fetch_nvcc() {
  [ ! -d build/cuda ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ] || return 0
  rm -rf build/cuda.part
  if cairn_quietly build/setup.log python3 -m pip install --no-deps --require-hashes --only-binary :all: \
    --target build/cuda.part --requirement "$CAIRN_CUDA_WHEELS"; then
    mv build/cuda.part build/cuda
  else
    echo "The CUDA compiler could not be fetched (build/setup.log): building without GPU kernels." >&2
  fi
}

cairn_configure() {
  local tree=build/$1
  if [ -f "$tree/build.ninja" ] && [ ! "$tree/build.ninja" -ot CMakePresets.json ]; then
    cairn_quietly "$tree/configure.log" ninja -C "$tree" build.ninja && return 0
  else
    cairn_quietly "$tree/configure.log" cmake --preset "$1" && touch "$tree/build.ninja" && return 0
  fi
  cat "$tree/configure.log" >&2
  echo "configuring the preset $1 failed; the output is above and in $tree/configure.log" >&2
  return 1
}

cairn_build() {
  local preset=$1 tree=build/$1
  shift
  cairn_quietly "$tree/build.log" ninja -C "$tree" -j "$CAIRN_JOBS" "$@" && return 0
  # Only what failed, not the steps that went well.
  grep -v -e '^\[[0-9]*/[0-9]*\] ' -e '^ninja: Entering' "$tree/build.log" >&2
  echo "building the preset $preset failed; the output is above and in $tree/build.log" >&2
  return 1
}
