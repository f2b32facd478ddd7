#!/usr/bin/env python3
"""scripts/setup.sh: what ./run and ./test install, and what they say on systems that have no apt."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REAL_TOOLS = ("basename", "bash", "cat", "comm", "cut", "dirname", "env", "grep", "mkdir", "mv", "nproc", "rm", "sed", "sort", "touch")

# Finds every header but those in MISSING_HEADERS.
COMPILER = """#!/bin/bash
[ "$1" = -dumpversion ] && echo "${VERSION:-14}" && exit 0
read -r line
for header in $MISSING_HEADERS; do [[ $line == *"<$header>"* ]] && exit 1; done
exit 0
"""
CMAKE = """#!/bin/bash
echo "cmake version ${CMAKE_VERSION:-3.25.1}"
"""
# INSTALLED is what dpkg knows of; apt finds no package of UNAVAILABLE.
DPKG_QUERY = """#!/bin/bash
for name in $INSTALLED; do echo "installed $name"; done
"""
APT_CACHE = """#!/bin/bash
if [[ " $UNAVAILABLE " == *" $2 "* ]]; then echo "  Candidate: (none)"; else echo "  Candidate: 1.0"; fi
"""
LOG = """#!/bin/bash
echo "$(basename "$0") $*" >>calls
"""
PIP = """#!/bin/bash
echo "python3 $*" >>calls
while [ "$1" != --target ] && [ "$1" != --dest ]; do shift; done
mkdir -p "$2"
"""


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tools = Path(self.folder.name, "tools")
        self.tools.mkdir()
        for name in REAL_TOOLS:
            self.tools.joinpath(name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
        self.tool("cmake", CMAKE)

    def tool(self, name, text):
        self.tools.joinpath(name).write_text(text, encoding="utf-8")
        self.tools.joinpath(name).chmod(0o755)

    def with_apt(self):
        for name, text in (("dpkg-query", DPKG_QUERY), ("apt-get", LOG), ("apt-cache", APT_CACHE), ("g++", COMPILER),
                           ("python3", PIP), ("tar", LOG), ("id", "#!/bin/bash\necho 0\n")):
            self.tool(name, text)

    def need(self, kinds, os_release, **variables):
        path = Path(self.folder.name, "os-release")
        path.write_text(os_release, encoding="utf-8")
        done = subprocess.run(["bash", "-c", f"source {ROOT}/scripts/setup.sh; cairn_need {kinds}"], cwd=self.folder.name,
                              env={"PATH": str(self.tools), "CAIRN_OS_RELEASE": str(path), **variables},
                              capture_output=True, text=True, check=False)
        calls = Path(self.folder.name, "calls")
        text = calls.read_text(encoding="utf-8") if calls.exists() else ""
        calls.unlink(missing_ok=True)
        return done.returncode, done.stderr, text

    # The packages given to apt-get install.
    def installed(self, calls):
        lines = [line for line in calls.splitlines() if " install " in line and line.startswith("apt-get")]
        return sorted(lines[0].split("--no-install-recommends ")[1].split()) if lines else []


class WithoutApt(Setup):
    def test_nothing_is_said_where_nothing_is_missing(self):
        for name in ("g++", "ninja"):
            self.tool(name, COMPILER)
        self.assertEqual(self.need("build", "ID=fedora\n"), (0, "", ""))

    def test_names_of_fedora_and_arch(self):
        self.tool("g++", COMPILER)
        missing = "toml++/toml.h nlohmann/json.hpp"
        for os_release, line in (
                ("ID=fedora\n", "  sudo dnf install ninja-build json-devel tomlplusplus-devel\n"),
                ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "  sudo dnf install ninja-build json-devel tomlplusplus-devel\n"),
                ("ID=arch\n", "  sudo pacman -S --needed ninja nlohmann-json tomlplusplus\n"),
                ("ID=endeavouros\nID_LIKE=arch\n", "  sudo pacman -S --needed ninja nlohmann-json tomlplusplus\n"),
                ("ID=nixos\n", "  named in Fedora: ninja-build json-devel tomlplusplus-devel\n"
                               "  named in Arch:   ninja nlohmann-json tomlplusplus\n")):
            code, said, _ = self.need("build", os_release, MISSING_HEADERS=missing)
            self.assertEqual(code, 1)
            self.assertEqual(said, "Missing: ninja nlohmann/json.hpp toml++/toml.h. Install them, then try again:\n" + line)

    def test_what_only_tests_take_is_named_only_for_tests(self):
        for name in ("g++", "ninja", "python3", "pkg-config"):
            self.tool(name, COMPILER)
        missing = {"MISSING_HEADERS": "gtest/gtest.h rapidcheck.h"}
        self.assertEqual(self.need("build 'format?' 'pages?'", "ID=arch\n", **missing), (0, "", ""))
        code, said, _ = self.need("build test", "ID=arch\n", **missing)
        self.assertEqual(code, 1)
        self.assertIn("  sudo pacman -S --needed gtest rapidcheck\n", said)

    def test_a_compiler_that_is_too_old_counts_as_missing(self):
        for name in ("g++", "ninja"):
            self.tool(name, COMPILER.replace(":-14", ":-11"))
        code, said, _ = self.need("build", "ID=fedora\n")
        self.assertEqual(code, 1)
        self.assertIn("gcc-c++", said)


class WithApt(Setup):
    BUILD = ["cmake", "g++", "libboost-dev", "libcli11-dev", "libssl-dev", "libtomlplusplus-dev", "liburing-dev", "libxxhash-dev",
             "libzmq3-dev", "ninja-build", "nlohmann-json3-dev", "zlib1g-dev"]

    def setUp(self):
        super().setUp()
        self.with_apt()

    def test_the_command_takes_no_libraries_for_tests(self):
        code, _, calls = self.need("build", "ID=debian\nVERSION_CODENAME=bookworm\n")
        self.assertEqual((code, self.installed(calls)), (0, self.BUILD))

    def test_what_is_there_is_not_installed(self):
        code, said, calls = self.need("build", "ID=debian\n", INSTALLED=" ".join(self.BUILD))
        self.assertEqual((code, said, calls), (0, "", ""))

    def test_ubuntu_22_04_has_other_names(self):
        code, _, calls = self.need("build", "ID=ubuntu\nUBUNTU_CODENAME=jammy\n")
        others = {"cmake", "g++", "libtomlplusplus-dev"}
        self.assertEqual((code, self.installed(calls)),
                         (0, sorted([name for name in self.BUILD if name not in others] + ["g++-12", "python3-pip"])))

    def test_optional_tools_that_the_system_lacks_are_left_out_and_not_looked_for_again(self):
        kinds, unavailable = "build 'format?' 'pages?'", {"UNAVAILABLE": "chromium-headless-shell"}
        code, _, calls = self.need(kinds, "ID=debian\n", **unavailable)
        self.assertEqual((code, self.installed(calls)), (0, sorted(self.BUILD + ["clang-format-19"])))
        code, said, calls = self.need(kinds, "ID=debian\n", INSTALLED=" ".join(self.BUILD + ["clang-format-19"]), **unavailable)
        self.assertEqual((code, said, calls), (0, "", ""))
        # If everything is required, apt-get reports what is missing.
        _, _, calls = self.need(kinds, "ID=debian\n", INSTALLED=" ".join(self.BUILD), CAIRN_REQUIRE_ALL="1", **unavailable)
        self.assertEqual(self.installed(calls), ["chromium-headless-shell", "clang-format-19"])

    def test_a_newer_cmake_comes_from_the_pinned_wheel(self):
        code, said, calls = self.need("build", "ID=debian\n", INSTALLED=" ".join(self.BUILD), CMAKE_VERSION="3.22.1")
        self.assertEqual((code, said), (0, ""))
        self.assertIn("--no-deps --require-hashes --only-binary :all:", calls)
        self.assertIn("--requirement scripts/cmake-wheel.txt", calls)
        self.assertTrue(Path(self.folder.name, "build", "cmake").is_dir())

    def test_toml_comes_from_the_pinned_archive_where_the_system_has_none(self):
        lacks = {"INSTALLED": " ".join(self.BUILD), "MISSING_HEADERS": "toml++/toml.h"}
        code, said, calls = self.need("build", "ID=debian\n", **lacks)
        self.assertEqual((code, said), (0, ""))
        self.assertIn("pip download --no-deps --require-hashes", calls)
        self.assertIn("--requirement scripts/tomlplusplus-source.txt", calls)
        self.assertTrue(Path(self.folder.name, "build", "tomlplusplus").is_dir())
        # Once is enough.
        self.assertEqual(self.need("build", "ID=debian\n", **lacks), (0, "", ""))

    def test_an_archive_that_pip_refuses_is_not_used(self):
        self.tool("python3", "#!/bin/bash\necho 'hashes do not match' >&2\nexit 1\n")
        code, said, _ = self.need("build", "ID=debian\n", INSTALLED=" ".join(self.BUILD), MISSING_HEADERS="toml++/toml.h")
        self.assertEqual(code, 1)
        self.assertIn("hashes do not match", said)
        self.assertIn("toml++ is needed", said)
        self.assertFalse(Path(self.folder.name, "build", "tomlplusplus").exists())


if __name__ == "__main__":
    sys.exit(unittest.main())
