#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of tools/cuda_code_size.py with a small program that nvcc compiles here; without nvcc only
# what is said of other files is tested.

import contextlib
import io
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import cuda_code_size

NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
SOURCE = """\
__device__ __forceinline__ float long_way(float x) {
  for (int i = 0; i < 3; ++i) x = sinf(x) * cosf(x) + expf(x);
  return x;
}
__global__ void once(float* p) {
  p[0] = long_way(p[1]);
}
__global__ void twice(float* p) {
  p[0] = long_way(p[1]);
  __syncthreads();
  p[2] = long_way(p[3]);
}
__global__ void twice_more(float* p) {
  p[0] = long_way(p[1]);
  __syncthreads();
  p[2] = long_way(p[3]);
}
"""


def run(*arguments):
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = cuda_code_size.main(list(arguments))
    return status, output.getvalue(), errors.getvalue()


class CodeSize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def path(self, name, content):
        path = Path(self.folder.name) / name
        path.write_bytes(content)
        return str(path)

    def compiled(self, *flags):
        if NVCC is None:
            self.skipTest("no nvcc")
        source = self.path("small.cu", SOURCE.encode())
        cubin = os.path.join(self.folder.name, f"small{len(flags)}.cubin")
        subprocess.run([NVCC, *flags, "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-o",
                        cubin, source], check=True, capture_output=True)
        return cubin

    def test_every_byte_of_a_function_belongs_to_a_line(self):
        functions = cuda_code_size.functions_of(Path(self.compiled("-lineinfo")).read_bytes())
        self.assertEqual(len(functions), 3)
        for name, size, rows in functions:
            total = cuda_code_size.bytes_by_path(rows, size)
            self.assertEqual(sum(n for path, n in total.items() if len(path) == 1), size, name)

    def test_what_is_inlined_twice_stands_below_both_lines(self):
        functions = cuda_code_size.functions_of(Path(self.compiled("-lineinfo")).read_bytes())
        for name, lines in {"once": {6}, "5twice": {9, 11}, "twice_more": {14, 16}}.items():
            (function,) = [f for f in functions if name in f[0] and ("more" in name) ==
                           ("more" in f[0])]
            total = cuda_code_size.bytes_by_path(function[2], function[1])
            callers = {path[0][1] for path in total if path[-1] == ("small.cu", 2)}
            self.assertEqual(callers, lines, name)

    def test_prints_the_largest_lines_first(self):
        status, output, _ = run(self.compiled("-lineinfo"), "--kernel", "once", "--depth", "2")
        self.assertEqual(status, 0)
        lines = output.splitlines()
        self.assertIn("once", lines[0])
        self.assertIn("small.cu:6", lines[1])
        self.assertIn("  small.cu:2", lines[2])

    def test_says_what_is_missing(self):
        status, _, errors = run(self.compiled())
        self.assertEqual((status, "compile with -lineinfo" in errors), (1, True), errors)
        status, _, errors = run(self.compiled("-lineinfo"), "--kernel", "thrice")
        self.assertEqual(status, 1)
        self.assertIn("none of 3 functions has 'thrice' in its name", errors)

    def test_a_file_that_is_cut_short_is_an_error(self):
        data = Path(self.compiled("-lineinfo")).read_bytes()
        for length in range(0, len(data), 61):
            status, output, errors = run(self.path("cut.cubin", data[:length]))
            self.assertEqual((status, output), (1, ""), length)
            self.assertTrue(errors.startswith("cuda_code_size: "), errors)

    def test_other_files_are_errors(self):
        status, _, errors = run(self.path("text", b"no program at all"))
        self.assertEqual((status, "not a 64-bit ELF file" in errors), (1, True), errors)
        status, _, errors = run(os.path.join(self.folder.name, "absent"))
        self.assertEqual((status, "No such file" in errors), (1, True), errors)


if __name__ == "__main__":
    unittest.main()
