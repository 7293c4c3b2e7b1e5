#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of tools/tidy.py: each rule passes a small good tree and finds the one thing that was made
# wrong in it.

import subprocess
import tempfile
import unittest
from pathlib import Path

import tidy

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
GOOD_TREE = {
    "README.md": "See `docs/ARCHITECTURE.md`, [the map](docs/ARCHITECTURE.md) and `src/base/`.\n",
    "docs/ARCHITECTURE.md": "The ring is in `src/trace/ring.cc`; `build/release` is not ours.\n",
    "include/gapless/trace.h": SPDX + "#pragma once\n#include <cstdint>\n",
    "src/base/CMakeLists.txt": "gapless_library(base SOURCES\n  file.cc)\n",
    "src/base/file.h": SPDX + "#pragma once\n",
    "src/base/file.cc": SPDX + '#include "base/file.h"\n#include <utility>\n',
    "src/trace/CMakeLists.txt": "gapless_library(trace SOURCES ring.cc ../base/crc.cc)\n",
    "src/base/crc.cc": SPDX,
    "src/trace/ring.h": SPDX + "#pragma once\n",
    "src/trace/ring.cc": SPDX + '#include "trace/ring.h"\n#include "base/file.h"\n'
                         '#include "gapless/trace.h"\n',
    "tests/fuzz/CMakeLists.txt": "foreach(reader tracr)\n",
    "tests/fuzz/tracr_fuzz.cc": SPDX + '#include "trace/ring.h"\n',
    "tools/count": "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n",
}


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for path, text in GOOD_TREE.items():
            self.write(path, text)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def append(self, path, text):
        self.write(path, (self.root / path).read_text() + text)

    def assert_finds(self, path, line, part):
        findings = tidy.findings_of(self.root)[1]
        self.assertEqual(len(findings), 1, findings)
        self.assertEqual(findings[0][:2], (path, line))
        self.assertIn(part, findings[0][2])

    def test_passes_a_good_tree(self):
        self.assertEqual(tidy.findings_of(self.root)[1], [])

    def test_finds_an_include_against_the_order(self):
        self.append("src/base/file.cc", '#include "trace/ring.h"\n')
        self.assert_finds("src/base/file.cc", 4, "base may not include trace/ring.h")

    def test_finds_a_type_that_two_headers_define(self):
        self.append("src/base/file.h", "struct Table;\nnamespace {\nstruct Row {};\n"
                                       "}  // namespace\nstruct Table {\n};\n")
        self.append("src/trace/ring.h", "class Row {\n};\nclass Table : public Base {\n};\n")
        self.assert_finds("src/trace/ring.h", 5, "Table is also a type of src/base/file.h")

    def test_finds_the_recorder_in_base(self):
        self.append("src/base/file.cc", '#include "gapless/trace.h"\n')
        self.assert_finds("src/base/file.cc", 4, "base may not include gapless/trace.h")

    def test_finds_a_public_header_that_needs_a_private_one(self):
        self.append("include/gapless/trace.h", '#include "trace/ring.h"\n')
        self.assert_finds("include/gapless/trace.h", 4, "not installed")

    def test_finds_a_module_without_a_place_in_the_order(self):
        self.write("src/extra/thing.h", SPDX + "#pragma once\n")
        self.assert_finds("src/extra/thing.h", 1, "'extra'")

    def test_finds_a_source_whose_own_header_is_not_first(self):
        self.write("src/base/file.cc", SPDX + '#include <utility>\n#include "base/file.h"\n')
        self.assert_finds("src/base/file.cc", 2, "own header")

    def test_finds_a_long_file(self):
        self.append("src/base/crc.cc", "\n" * tidy.MAX_LINES)
        self.assert_finds("src/base/crc.cc", tidy.MAX_LINES, "601 lines")

    def test_finds_a_long_line_but_not_in_prose(self):
        self.append("README.md", "a" * 101 + "\n")
        self.append("src/base/crc.cc", "//" + "ä" * 98 + "\n")
        self.assertEqual(tidy.findings_of(self.root)[1], [])
        self.append("src/base/crc.cc", "//" + "a" * 99 + "\n")
        self.assert_finds("src/base/crc.cc", 3, "101 columns")

    def test_finds_a_tab(self):
        self.append("src/base/crc.cc", "int\tx;\n")
        self.assert_finds("src/base/crc.cc", 2, "tab")

    def test_finds_a_missing_license_line(self):
        self.write("src/base/crc.cc", "int x;\n")
        self.assert_finds("src/base/crc.cc", 1, "SPDX")

    def test_finds_a_script_without_license_line(self):
        self.write("tools/count", "#!/usr/bin/env bash\ntrue\n")
        self.assert_finds("tools/count", 2, "SPDX")

    def test_finds_a_header_that_may_be_read_twice(self):
        self.write("src/base/file.h", SPDX)
        self.assert_finds("src/base/file.h", 1, "#pragma once")

    def test_finds_a_banned_word_in_an_identifier(self):
        self.append("src/base/crc.cc", "int copy_fast = 0;  // fast in prose is fine\n")
        self.assert_finds("src/base/crc.cc", 2, "copy_fast says 'fast'")

    def test_finds_a_banned_word_in_camel_case_and_python(self):
        self.write("tools/count.py", "# SPDX-License-Identifier: Apache-2.0\nx = FileManager()\n")
        self.assert_finds("tools/count.py", 2, "FileManager says 'Manager'")

    def test_leaves_texts_and_comments_alone(self):
        self.append("src/base/crc.cc", '/* helper\n*/ auto s = "misc"; auto r = R"(util\n)";\n'
                                       "int64_t n = 1'000; uint_fast8_t m; int breakfast;\n")
        self.assertEqual(tidy.findings_of(self.root)[1], [])

    def test_finds_a_banned_word_in_a_file_name(self):
        self.write("src/base/string_util.h", SPDX + "#pragma once\n")
        self.assert_finds("src/base/string_util.h", 1, "'util'")

    def test_finds_a_leftover_marker(self):
        self.append("src/base/crc.cc", "// FIX" "ME later\n")
        self.assert_finds("src/base/crc.cc", 2, "marker")

    def test_finds_a_large_file(self):
        self.write("tests/data/big.bin", "x" * (tidy.MAX_BYTES + 1))
        self.assert_finds("tests/data/big.bin", 1, "262145 bytes")

    def test_finds_a_source_in_no_list(self):
        self.write("src/base/orphan_test.cc", SPDX)
        self.assert_finds("src/base/orphan_test.cc", 1, "no CMakeLists.txt")

    def test_finds_a_source_that_is_only_listed_in_a_comment(self):
        self.write("src/base/CMakeLists.txt", "# file.cc\n")
        self.assert_finds("src/base/file.cc", 1, "no CMakeLists.txt")

    def test_finds_a_path_in_the_docs_that_does_not_exist(self):
        self.append("docs/ARCHITECTURE.md", "\nSee `src/trace/gone.cc`.\n")
        self.assert_finds("docs/ARCHITECTURE.md", 3, "names src/trace/gone.cc")

    def test_finds_a_link_that_leads_nowhere(self):
        self.append("docs/ARCHITECTURE.md", "[web](https://x.org) [readme](../README.md#top)\n")
        self.append("docs/ARCHITECTURE.md", "[gone](gone.md)\n")
        self.assert_finds("docs/ARCHITECTURE.md", 3, "links to gone.md")

    def test_finds_a_test_in_the_docs_that_does_not_exist(self):
        self.append("src/trace/ring.cc", "TEST(Ring, Turns) {}\n")
        self.append("docs/ARCHITECTURE.md", "`Ring.Turns` is there, `Ring.Stops` is not.\n")
        self.assert_finds("docs/ARCHITECTURE.md", 2, "names the test Ring.Stops")

    def test_leaves_out_what_git_ignores(self):
        self.write(".gitignore", "/build/\n")
        self.write("build/generated.cc", "int x;\n")
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.assertEqual(tidy.findings_of(self.root)[1], [])

    def test_walks_the_tree_without_git(self):
        self.write("build/generated.cc", "int x;\n")
        self.assertIn("src/base/crc.cc", tidy.list_files(self.root))
        self.assertEqual(tidy.findings_of(self.root)[1], [])


if __name__ == "__main__":
    unittest.main()
