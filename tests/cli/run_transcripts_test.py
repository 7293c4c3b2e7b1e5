#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of run_transcripts.py on transcripts of shell commands.

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path

import run_transcripts


class RunTranscripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "case.test"

    def run_text(self, text, update=False):
        """(passed, what was printed) for a transcript with this text."""
        self.path.write_text(text)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            passed = run_transcripts.run_transcript(self.path, [self.folder], self.folder, update)
        return passed, printed.getvalue()

    def assert_passes(self, text):
        passed, printed = self.run_text(text)
        self.assertTrue(passed, printed)

    def assert_fails(self, text, *parts):
        passed, printed = self.run_text(text)
        self.assertFalse(passed)
        for part in parts:
            self.assertIn(part, printed)

    def assert_updates(self, text, expected):
        self.assertTrue(self.run_text(text, update=True)[0])
        self.assertEqual(self.path.read_text(), expected)
        self.assert_passes(expected)

    def test_accepts_exact_output(self):
        self.assert_passes("# Why.\n$ echo one; echo two >&2; echo 3\none\ntwo\n3\n\n$ true\n")

    def test_refuses_other_output_and_shows_the_difference(self):
        self.assert_fails("$ echo one; echo two\none\ntoo\n", "case.test: 1 of 1", "-too", "+two")

    def test_refuses_missing_and_surplus_lines(self):
        self.assert_fails("$ echo one\none\ntwo\n", "-two")
        self.assert_fails("$ echo one; echo two\none\n", "+two")
        self.assert_fails("$ echo one\n", "+one")

    def test_checks_the_exit_status(self):
        self.assert_passes("$ echo no; exit 3\nno\n[exit 3]\n")
        self.assert_fails("$ exit 3\n", "-[exit 0]", "+[exit 3]")
        self.assert_fails("$ true\n[exit 3]\n", "-[exit 3]", "+[exit 0]")

    def test_wildcard_within_a_line(self):
        self.assert_passes("$ echo 'took 12 ms (a+b)'\ntook {...} ms (a+b)\n")
        self.assert_fails("$ printf 'took 12\\nms\\n'\ntook {...}ms\n")

    def test_wildcard_for_lines(self):
        self.assert_passes("$ seq 5\n1\n...\n5\n")
        self.assert_passes("$ seq 2\n1\n...\n2\n")
        self.assert_fails("$ seq 5\n1\n...\n6\n")
        self.assert_fails("$ seq 5\n...\n4\n")

    def test_commands_share_a_fresh_folder(self):
        self.assert_passes("$ echo x >file\n\n$ cat file; ls\nx\nfile\n")
        self.assert_passes("$ ls\n")

    def test_continues_a_command(self):
        self.assert_passes("$ cat <<END\n> one\n> two\n> END\none\ntwo\n")

    def test_escapes_lines_that_look_like_syntax(self):
        self.assert_passes("$ printf '# a\\n$ b\\n[exit 1]\\n'\n\\# a\n\\$ b\n\\[exit 1]\n")

    def test_keeps_blank_lines_inside_output(self):
        self.assert_passes("$ printf 'a\\n\\nb\\n'\na\n\nb\n\n# End.\n")
        self.assert_fails("$ printf 'a\\nb\\n'\na\n\nb\n")

    def test_gives_the_data_folder_and_hides_our_variables(self):
        os.environ["GAPLESS_TRACE_FILE"] = "leak"
        self.addCleanup(os.environ.pop, "GAPLESS_TRACE_FILE")
        self.assert_passes("$ ls $GAPLESS_DATA; echo \"[$GAPLESS_TRACE_FILE]\"\ncase.test\n[]\n")

    def test_finds_programs_in_the_folders_given(self):
        program = self.folder / "say"
        program.write_text("#!/bin/bash\necho said $1\n")
        program.chmod(0o755)
        self.assert_passes("$ say it\nsaid it\n")

    def test_refuses_text_without_a_command(self):
        for text in ["loose\n", "# only this\n", "$ false\n[exit 1]\nafter\n"]:
            with self.assertRaises(ValueError):
                run_transcripts.parse_transcript(text, "case.test")

    def test_update_rewrites_what_differs_and_keeps_the_rest(self):
        self.assert_updates("# Why.\n$ seq 3\n1\nx\n3\n\n# Other.\n$ exit 2\n# End.\n",
                            "# Why.\n$ seq 3\n1\n2\n3\n\n# Other.\n$ exit 2\n[exit 2]\n# End.\n")

    def test_update_keeps_wildcards_that_match(self):
        self.assert_updates("$ echo took 5 ms; echo old\ntook {...} ms\nnew\n",
                            "$ echo took 5 ms; echo old\ntook {...} ms\nold\n")
        self.assert_updates("$ seq 5\n1\n...\n6\n", "$ seq 5\n1\n...\n5\n")
        self.assert_updates("$ echo took 5 s\ntook {...} ms\n", "$ echo took 5 s\ntook 5 s\n")

    def test_update_leaves_a_passing_file_alone(self):
        text = "$ seq 3\n...\n\n\n$ true\n"
        self.assertTrue(self.run_text(text, update=True)[0])
        self.assertEqual(self.path.read_text(), text)

    def test_update_escapes_and_continues(self):
        self.assert_updates("$ cat <<END\n> # x\n> END\n", "$ cat <<END\n> # x\n> END\n\\# x\n")

    def test_ends_a_command_that_hangs(self):
        self.addCleanup(setattr, run_transcripts, "TIMEOUT_S", run_transcripts.TIMEOUT_S)
        run_transcripts.TIMEOUT_S = 0.2
        self.assert_fails("$ sleep 5; true\n", "none after 0.2 s")


if __name__ == "__main__":
    unittest.main()
