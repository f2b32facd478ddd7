#!/usr/bin/env python3
"""scripts/check_layers.py finds each kind of violation in a small tree, and nothing in a clean one."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_layers.py"
sys.path.insert(0, str(SCRIPT.parent))
import check_layers  # noqa: E402

ARCHITECTURE = """
| folder | holds | may include |
|---|---|---|
| `base/` | basics | nothing |
| `tokens/` | keys | base |
| `pool/` | blocks | base, tokens |
| `events/` | events | base, `pool/*observer.h` |
| `manager/`, `cli/` | the rest | all above |
"""

DEPENDENCIES = """
| library | headers | folders | why |
|---|---|---|---|
| xxHash | `xxhash.h` | `tokens/` | hashing |
| GoogleTest | `gtest/*` | `tests/` | tests |
"""

CLEAN = {
    "docs/architecture.md": ARCHITECTURE,
    "docs/dependencies.md": DEPENDENCIES,
    "README.md": "# Cairn\n[the architecture](docs/architecture.md), [here](#cairn), [far](https://example.org/x)\n"
    "```\n[not a link](nowhere.md)\n```\n`[nor this](nowhere.md)`\n",
    "cairn/base/result.h": "#include <vector>\n#include <sys/mman.h>\n",
    "cairn/tokens/key.h": '#include "cairn/base/result.h"\n#include <xxhash.h>\n',
    "cairn/pool/observer.h": "",
    "cairn/pool/pool.h": '#include "cairn/tokens/key.h"\n/*\n#include "cairn/events/log.h"\n*/\n',
    "cairn/pool/pool_test.cc": '#include <gtest/gtest.h>\n// sleep_for(1)\nauto s = "usleep(1)"; char c = \'"\';\n',
    "cairn/events/log.h": '#include "cairn/pool/observer.h"\n',
    "cairn/manager/config.cc": 'auto x = getenv("X");\n',
    "cairn/cli/main.cc": "",
    "cairn/core.h": '#include "cairn/pool/observer.h"\n#include <vector>\n',
    "cairn/pool/CMakeLists.txt": "cairn_component(pool\n  HEADERS observer.h\n  SOURCES pool.cc)\n",
    "tests/model_test.cc": '#include "cairn/events/log.h"\n#include "cairn/pool/pool.h"\n',
    "build/release/junk.cc": '#include "nothing.h"\n',
}


class CheckLayers(unittest.TestCase):
    def make_tree(self, changes):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in {**CLEAN, **changes}.items():
            path = Path(folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return Path(folder.name).resolve()

    def run_on(self, changes):
        return check_layers.Checker(self.make_tree(changes)).run()

    def assert_finds(self, name, text, *expected):
        """A tree in which `name` holds `text` has one violation for each of `expected`, a 'file:line: words' start."""
        lines = self.run_on({name: text})
        self.assertEqual(len(lines), len(expected), lines)
        for line, start in zip(lines, expected):
            self.assertTrue(line.startswith(start), f"{line!r} does not start with {start!r}")
            self.assertIn("; ", line, "the message does not say what to do")

    def test_clean_tree_passes(self):
        self.assertEqual(self.run_on({}), [])

    def test_status_tells_whether_there_is_a_violation(self):
        for changes, status in (({}, 0), ({"cairn/pool/a.cc": '#include "pool.h"\n'}, 1)):
            command = [sys.executable, SCRIPT, self.make_tree(changes)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr, len(done.stdout.splitlines())), (status, "", status))

    def test_include_against_the_direction(self):
        self.assert_finds("cairn/base/a.h", '\n#include "cairn/pool/pool.h"\n',
                          "cairn/base/a.h:2: base/ may not include cairn/pool/pool.h")

    def test_include_of_a_layer_that_the_row_leaves_out(self):
        self.assert_finds("cairn/events/a.cc", '#include "cairn/tokens/key.h"\n',
                          "cairn/events/a.cc:1: events/ may not")

    def test_one_header_of_a_folder_does_not_open_the_folder(self):
        self.assert_finds("cairn/events/a.cc", '#include "cairn/pool/pool.h"\n', "cairn/events/a.cc:1: events/ may not")

    def test_tests_beside_code_follow_the_same_rule(self):
        self.assert_finds("cairn/tokens/a_test.cc", '#include "cairn/pool/pool.h"\n',
                          "cairn/tokens/a_test.cc:1: tokens/")

    def test_components_do_not_include_tests(self):
        self.assert_finds("cairn/pool/a.cc", '#include "tests/model_test.cc"\n',
                          "cairn/pool/a.cc:1: pool/ may not include")

    def test_quoted_include_not_by_full_path(self):
        self.assert_finds("cairn/pool/a.cc", '#include "pool.h"\n', 'cairn/pool/a.cc:1: "pool.h" is no path')
        self.assert_finds("tests/a.cc", '#include "../cairn/pool/pool.h"\n', "tests/a.cc:1: ")

    def test_our_header_in_angle_brackets(self):
        self.assert_finds("cairn/pool/a.cc", "#include <cairn/base/result.h>\n",
                          "cairn/pool/a.cc:1: <cairn/base/result.h>")

    def test_library_outside_its_folder(self):
        self.assert_finds("cairn/pool/a.cc", "#include <xxhash.h>\n", "cairn/pool/a.cc:1: <xxhash.h> of xxHash")
        self.assert_finds("tests/a.cc", "#include <xxhash.h>\n", "tests/a.cc:1: <xxhash.h> of xxHash")
        self.assert_finds("cairn/pool/a.cc", "#include <gtest/gtest.h>\n", "cairn/pool/a.cc:1: <gtest/gtest.h>")

    def test_library_that_no_document_names(self):
        self.assert_finds("cairn/pool/a.cc", "#include <boost/asio.hpp>\n",
                          "cairn/pool/a.cc:1: <boost/asio.hpp> belongs to no")

    def test_two_files_with_one_name(self):
        self.assert_finds("cairn/tokens/pool.h", "", "cairn/tokens/pool.h:1: cairn/pool/pool.h has the same name")

    def test_header_of_tests_that_is_not_named_as_one(self):
        self.assert_finds("tests/world.h", "", "tests/world.h:1: a header of tests that does not end in _testing; "
                          "name it world_testing.h")

    def test_public_header_that_includes_a_private_one(self):
        self.assert_finds("cairn/pool/observer.h", '#include "cairn/base/result.h"\n',
                          "cairn/pool/observer.h:1: a public header includes cairn/base/result.h, which is not public")
        self.assert_finds("cairn/core.h", '#include "cairn/pool/observer.h"\n#include "cairn/pool/pool.h"\n',
                          "cairn/core.h:2: a public header includes cairn/pool/pool.h")

    def test_public_header_that_no_component_has(self):
        self.assert_finds("cairn/core.h", "", "cairn/pool/CMakeLists.txt:1: cairn/pool/observer.h is public, but")
        self.assert_finds("cairn/pool/CMakeLists.txt", "cairn_component(pool\n  HEADERS observer.h gone.h\n  USES base)\n",
                          "cairn/pool/CMakeLists.txt:1: HEADERS names cairn/pool/gone.h, which does not exist")

    def test_row_of_a_folder_that_is_not_there(self):
        self.assert_finds("docs/architecture.md", ARCHITECTURE + "| `server/` | nothing yet | all above |\n",
                          "docs/architecture.md:9: there is no folder cairn/server/")

    def test_sleep_in_a_test(self):
        for call in ("std::this_thread::sleep_for(1ms);", "usleep(1);", "sleep (1);", "::sleep(1);"):
            self.assert_finds("cairn/pool/a_test.cc", f"\n\n{call}\n", "cairn/pool/a_test.cc:3: a test sleeps")
        self.assertEqual(self.run_on({"cairn/pool/a.cc": "usleep(1);\n"}), [])
        self.assertEqual(self.run_on({"cairn/pool/a_test.cc": "policy.sleep(1);\n"}), [])

    def test_environment_read_where_it_must_not(self):
        self.assert_finds("cairn/pool/a.cc", 'auto x = std::getenv("X");\n', "cairn/pool/a.cc:1: reads the environment")
        self.assertEqual(self.run_on({"cairn/cli/a.cc": 'auto x = std::getenv("X");\n'}), [])

    def test_link_that_leads_nowhere(self):
        self.assert_finds("docs/a.md", "see [it](gone.md)\n", "docs/a.md:1: the link gone.md leads nowhere")
        self.assert_finds("docs/a.md", "[it]: ../gone.md\n", "docs/a.md:1: the link ../gone.md leads nowhere")
        self.assert_finds("docs/a.md", "see [it](../README.md#gone)\n", "docs/a.md:1: README.md has no heading")

    def test_link_out_of_the_repository(self):
        self.assert_finds("docs/a.md", "see [it](../../other/file.md)\n",
                          "docs/a.md:1: the link ../../other/file.md leads out")

    def test_folder_that_the_table_does_not_name(self):
        self.assert_finds("cairn/misc/a.h", "", "cairn/misc:1: cairn/misc/ is no folder of the table")

    def test_table_that_points_downwards(self):
        self.assert_finds("docs/architecture.md", ARCHITECTURE.replace("| keys | base |", "| keys | base, pool |"),
                          "docs/architecture.md:5: tokens/ may include pool, which no row above names")

    def test_missing_table(self):
        lines = self.run_on({"docs/architecture.md": "nothing here\n"})
        self.assertTrue(lines[0].startswith("docs/architecture.md:1: no table"), lines)


if __name__ == "__main__":
    unittest.main()
