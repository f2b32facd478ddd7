#!/usr/bin/env python3
"""scripts/check_readme_example.py passes on the same text, and says which line differs otherwise."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_readme_example.py"
README = "# Cairn\n\n```\nsh\n```\n\n```cpp\nint x = 1;\n\nuse(x);\n```\n"
SOURCE = "int main() {\n  // README: begin\n  int x = 1;\n\n  use(x);\n  // README: end\n}\n"


class CheckReadmeExample(unittest.TestCase):
    def run_on(self, readme, source):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "examples").mkdir()
            Path(folder, "README.md").write_text(readme, encoding="utf-8")
            Path(folder, "examples", "quickstart.cc").write_text(source, encoding="utf-8")
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
            return done.returncode, done.stderr

    def test_same_text_passes(self):
        self.assertEqual(self.run_on(README, SOURCE), (0, ""))

    def test_changed_line_is_named(self):
        status, message = self.run_on(README, SOURCE.replace("use(x)", "use(2)"))
        self.assertEqual(status, 1)
        self.assertIn("line 3", message)

    def test_line_too_many_is_named(self):
        for readme, source in ((README, SOURCE.replace("use(x);\n", "use(x);\n  more();\n")),
                               (README.replace("use(x);\n", "use(x);\nmore();\n"), SOURCE)):
            status, message = self.run_on(readme, source)
            self.assertEqual(status, 1)
            self.assertIn("line 4", message)

    def test_missing_block_or_marker(self):
        self.assertIn("README.md has no line", self.run_on("# Cairn\n", SOURCE)[1])
        self.assertIn("// README: begin", self.run_on(README, "int main() {}\n")[1])
        self.assertIn("// README: end", self.run_on(README, "// README: begin\n")[1])


if __name__ == "__main__":
    unittest.main()
