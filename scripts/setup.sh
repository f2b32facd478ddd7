# Sourced by ./run, ./test and the scripts beside it; the working directory is the root of the repository.
#
#   cairn_need KIND...          installs the packages of these kinds of scripts/packages.txt that are missing. A kind that ends
#                               in `?` is optional: packages that the system does not have are left out, unless
#                               CAIRN_REQUIRE_ALL is set. On a system without apt, names the missing packages.
#   cairn_fetch_nvcc            fetches the CUDA compiler into build/cuda if the machine has none
#   cairn_configure PRESET      configures the preset's tree if there is none or the presets changed
#   cairn_build PRESET TARGET...
#   cairn_quietly LOG COMMAND   runs a command with its output in LOG; a terminal shows the last line of LOG meanwhile
#
# Each prints what went wrong, with the log of the command that failed, and returns non-zero.

CAIRN_JOBS=${CAIRN_JOBS:-$(nproc)}
CAIRN_OS_RELEASE=${CAIRN_OS_RELEASE:-/etc/os-release}

# Exports CXX: the caller's, or g++, or the newest g++ if g++ itself is too old.
cairn_choose_compiler() {
  local name
  [ -z "${CXX:-}" ] || return 0
  for name in g++ g++-14 g++-13 g++-12; do
    if command -v $name >/dev/null && [ "$($name -dumpversion | cut -d . -f 1)" -ge 12 ]; then
      export CXX=$name
      return 0
    fi
  done
}

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

# cairn_rows KIND...: the rows of scripts/packages.txt of these kinds.
cairn_rows() {
  local row
  while read -r -a row; do
    [[ " $* " == *" ${row[0]:-#} "* ]] && echo "${row[*]}"
  done <"${BASH_SOURCE[0]%/*}/packages.txt"
}

# cairn_debian_packages KIND...: the names of their packages on this release of Debian or Ubuntu.
cairn_debian_packages() {
  local system name
  system=$(source "$CAIRN_OS_RELEASE" && echo "${UBUNTU_CODENAME:-${VERSION_CODENAME:-}}")
  while read -r _ _ name _; do
    case $system:$name in
      # Ubuntu 22.04: g++ 11, CMake 3.22 (cairn_fetch_cmake) and mold 1.0 are too old, toml++ is missing (cairn_fetch_tomlplusplus).
      jammy:g++) echo g++-12 ;;
      jammy:cmake) echo python3-pip ;;
      jammy:libtomlplusplus-dev | jammy:mold) ;;
      *) echo "$name" ;;
    esac
  done < <(cairn_rows "$@")
}

# Reads names of packages and prints those that are not installed.
cairn_not_installed() {
  local names
  mapfile -t names < <(sort -u)
  [ ${#names[@]} = 0 ] || comm -23 <(printf '%s\n' "${names[@]}") \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null | sed -n 's/^installed //p' | sort -u)
}

cairn_need() {
  local kind required=() optional=() status
  for kind; do
    if [[ $kind == *'?' && -z ${CAIRN_REQUIRE_ALL:-} ]]; then optional+=("${kind%'?'}"); else required+=("${kind%'?'}"); fi
  done
  if command -v dpkg-query >/dev/null; then
    cairn_install
  else
    cairn_name_missing
  fi
  status=$?
  cairn_choose_compiler
  [ $status = 0 ] && cairn_fetch_tomlplusplus && cairn_fetch_cmake
}

# Of the kinds in `required` and `optional`, by apt.
cairn_install() {
  local missing wanted command=() name unavailable=build/.unavailable
  mapfile -t missing < <(cairn_debian_packages "${required[@]}" | cairn_not_installed)
  # What an earlier run found that the system does not have is not looked for again.
  mapfile -t wanted < <(cairn_debian_packages "${optional[@]}" | cairn_not_installed |
    grep -vxF -f <(cat $unavailable 2>/dev/null))
  [ $((${#missing[@]} + ${#wanted[@]})) -gt 0 ] || return 0

  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
      command=(sudo)
    elif [ ${#missing[@]} = 0 ]; then
      echo "Not installed, because that takes root or sudo: ${wanted[*]}" >&2
      return 0
    else
      echo "Packages are missing, and installing them takes root or sudo. Run as root, then try again:" >&2
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]} ${wanted[*]}" >&2
      return 1
    fi
  fi
  command+=(env DEBIAN_FRONTEND=noninteractive apt-get -q)
  if ! cairn_quietly build/setup.log "${command[@]}" update; then
    cat build/setup.log >&2
    echo "apt-get update failed; its output is above and in build/setup.log" >&2
    return 1
  fi
  for name in "${wanted[@]}"; do
    if apt-cache policy "$name" | grep -q '^ *Candidate: [^(]'; then missing+=("$name"); else echo "$name" >>$unavailable; fi
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "Installing ${missing[*]}" >&2
  cairn_quietly build/setup.log "${command[@]}" install -y --no-install-recommends "${missing[@]}" && return 0
  cat build/setup.log >&2
  echo "apt-get install failed; its output is above and in build/setup.log" >&2
  return 1
}

# Of the kinds in `required`, on a system without apt: what the compiler and the shell do not find.
cairn_name_missing() {
  local found_by fedora arch missing=() of_fedora=() of_arch=() compiler
  compiler=$(cairn_choose_compiler && echo "${CXX:-}")
  while read -r _ found_by _ fedora arch; do
    case $found_by in
      *.*) "${compiler:-g++}" -E -x c++ - <<<"#include <$found_by>" ;;
      g++) command -v "${compiler:-none}" ;;
      *) command -v "$found_by" ;;
    esac >/dev/null 2>&1 && continue
    missing+=("$found_by") of_fedora+=("$fedora") of_arch+=("$arch")
  done < <(cairn_rows "${required[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "Missing: ${missing[*]}. Install them, then try again:" >&2
  case " $(source "$CAIRN_OS_RELEASE" 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") " in
    *' fedora '* | *' rhel '*) echo "  sudo dnf install ${of_fedora[*]}" ;;
    *' arch '*) echo "  sudo pacman -S --needed ${of_arch[*]}" ;;
    *) printf '  named in Fedora: %s\n  named in Arch:   %s\n' "${of_fedora[*]}" "${of_arch[*]}" ;;
  esac >&2
  return 1
}

# cairn_pip FOLDER LIST: installs the wheels of LIST, and nothing else, into FOLDER.
cairn_pip() {
  rm -rf "$1.part"
  cairn_quietly build/setup.log python3 -m pip install --no-deps --require-hashes --only-binary :all: \
    --target "$1.part" --requirement "$2" && mv "$1.part" "$1"
}

# If the system's CMake is too old for the presets, puts a newer one into PATH.
cairn_fetch_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n '1s/^cmake version //p')
  printf '%s\n' 3.25 "$version" | sort -C -V && return 0
  if [ ! -d build/cmake ] && ! cairn_pip build/cmake scripts/cmake-wheel.txt; then
    cat build/setup.log >&2
    echo "CMake 3.25 or later is needed, and pip could not install it; its output is above and in build/setup.log" >&2
    return 1
  fi
  export PATH=$PWD/build/cmake/cmake/data/bin:$PATH
}

# If the compiler finds no toml++, puts the headers into build/tomlplusplus, where CMake looks for them.
cairn_fetch_tomlplusplus() {
  local folder=build/tomlplusplus
  [ ! -d $folder ] || return 0
  printf '%s\n' '#if !__has_include(<toml++/toml.h>)' '#error' '#endif' | "${CXX:-g++}" -E -x c++ - >/dev/null 2>&1 && return 0
  rm -rf $folder.part
  if cairn_quietly build/setup.log python3 -m pip download --no-deps --require-hashes --no-binary :all: \
    --no-build-isolation --dest $folder.part --requirement scripts/tomlplusplus-source.txt &&
    tar -xzf $folder.part/pytomlpp-*.tar.gz -C $folder.part --strip-components=4 --wildcards \
      '*/third_party/tomlplusplus/include/toml++' 2>>build/setup.log &&
    mv $folder.part $folder; then
    return 0
  fi
  cat build/setup.log >&2
  echo "toml++ is needed, and pip could not fetch it; its output is above and in build/setup.log" >&2
  return 1
}

# Without nvcc the library has no GPU kernels and everything else works, so a failure is only reported.
cairn_fetch_nvcc() {
  [ ! -d build/cuda ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ] || return 0
  cairn_pip build/cuda scripts/cuda-wheels.txt ||
    echo "The CUDA compiler could not be fetched (build/setup.log): building without GPU kernels." >&2
}

cairn_configure() {
  local preset=$1 tree=build/$1 known=1 compiler=()
  # `command` and `release` are one tree. Once it has tests, it keeps them.
  case $preset:$(sed -n 's/^CAIRN_TESTS:BOOL=//p' build/release/CMakeCache.txt 2>/dev/null) in
    command:ON) preset=release tree=build/release ;;
    command:*) tree=build/release ;;
    release:OFF) known=0 ;;
  esac
  if [ $known = 1 ] && [ -f "$tree/build.ninja" ] && [ ! "$tree/build.ninja" -ot CMakePresets.json ]; then
    cairn_quietly "$tree/configure.log" ninja -C "$tree" build.ninja && return 0
  else
    [ "$preset" = fuzz ] || compiler=(-D "CMAKE_CXX_COMPILER=${CXX:-g++}")
    cairn_quietly "$tree/configure.log" cmake --preset "$preset" "${compiler[@]}" && touch "$tree/build.ninja" && return 0
  fi
  cat "$tree/configure.log" >&2
  echo "configuring the preset $preset failed; the output is above and in $tree/configure.log" >&2
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
