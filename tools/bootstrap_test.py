#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Tests of tools/bootstrap. Each runs it with a PATH of its own, on which dpkg-query, apt-get, sudo
# and id are scripts that play a machine and write down how they were called.

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"
COMMANDS = ["bash", "awk", "env", "wc"]  # what the script itself calls


class Machine:
    """A folder of commands; `log` holds the calls of the pretended ones."""

    def __init__(self, folder):
        self.bin = Path(folder)
        self.log_path = self.bin / "log"
        self.log_path.touch()
        for name in COMMANDS:
            (self.bin / name).symlink_to(shutil.which(name))

    def add(self, name, body="true"):
        script = self.bin / name
        script.write_text(f'#!/bin/bash\necho "{name} $*" >>{self.log_path}\n{body}\n')
        script.chmod(0o755)

    def add_dpkg(self, lacks):
        lines = 'for name in "${@:4}"; do\n'
        for name in lacks:
            lines += f'  [[ $name == {name} ]] && continue\n'
        self.add("dpkg-query", lines + '  echo "installed $name"\ndone')

    def run(self, *arguments):
        environment = {"PATH": str(self.bin)}
        return subprocess.run(["/bin/bash", str(BOOTSTRAP), *arguments], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def log(self):
        return self.log_path.read_text()


class Bootstrap(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.machine = Machine(self.folder.name)

    def test_does_nothing_when_all_is_there(self):
        self.machine.add_dpkg(lacks=[])
        self.machine.add("apt-get", "exit 1")
        result = self.machine.run()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(len(result.stdout.splitlines()), 1)
        self.assertNotIn("apt-get", self.machine.log())

    def test_names_what_is_missing_then_installs_it_as_root(self):
        self.machine.add_dpkg(lacks=["libfmt-dev", "libzstd-dev"])
        self.machine.add("apt-get")
        self.machine.add("id", "echo 0")
        result = self.machine.run("--for", "build")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("missing packages: libfmt-dev libzstd-dev\n", result.stdout)
        self.assertIn("install -y --no-install-recommends libfmt-dev libzstd-dev\n",
                      self.machine.log())
        self.assertNotIn("update", self.machine.log())

    def test_fetches_the_lists_once_when_apt_does_not_know_the_package(self):
        self.machine.add_dpkg(lacks=["libfmt-dev"])
        self.machine.add("apt-get", '[[ $* != *--simulate* ]]')
        self.machine.add("id", "echo 0")
        result = self.machine.run("--for", "build")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(self.machine.log().count("update"), 1)
        self.assertEqual(self.machine.log().count("install -y"), 1)

    def test_says_which_packages_apt_could_not_install(self):
        self.machine.add_dpkg(lacks=["libfmt-dev"])
        self.machine.add("apt-get", '[[ $* != *install* ]]')
        self.machine.add("id", "echo 0")
        result = self.machine.run("--for", "build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get could not install: libfmt-dev", result.stdout)

    def test_uses_sudo_when_not_root(self):
        self.machine.add_dpkg(lacks=["libfmt-dev"])
        self.machine.add("apt-get")
        self.machine.add("id", "echo 1000")
        self.machine.add("sudo", '"$@"')
        result = self.machine.run("--for", "build")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("sudo env DEBIAN_FRONTEND=noninteractive apt-get", self.machine.log())

    def test_says_what_to_run_without_root_and_without_sudo(self):
        self.machine.add_dpkg(lacks=["libfmt-dev"])
        self.machine.add("apt-get")
        self.machine.add("id", "echo 1000")
        result = self.machine.run("--for", "build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("as root: apt-get install libfmt-dev", result.stdout)
        self.assertNotIn("apt-get", self.machine.log())

    def test_takes_a_tool_on_path_for_its_package(self):
        self.machine.add_dpkg(lacks=["nodejs", "npm"])
        self.machine.add("apt-get")
        self.machine.add("node")
        result = self.machine.run("--for", "test", "--dry-run")
        self.assertIn("missing packages: npm\n", result.stdout)

    def test_dry_run_installs_nothing(self):
        self.machine.add_dpkg(lacks=["libfmt-dev"])
        self.machine.add("apt-get")
        result = self.machine.run("--dry-run")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("would run: apt-get install", result.stdout)
        self.assertNotIn("apt-get", self.machine.log())

    def test_lists_each_package_once(self):
        names = self.machine.run("--list").stdout.split()
        self.assertIn("libfmt-dev", names)
        self.assertIn("lttng-tools", names)
        self.assertEqual(len(names), len(set(names)))
        self.assertNotIn("lttng-tools", self.machine.run("--for", "check", "--list").stdout)

    def test_names_what_is_needed_on_another_system(self):
        result = self.machine.run("--for", "build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("not a Debian system", result.stdout)
        self.assertIn("libfmt-dev", result.stdout)
        self.assertIn("not on PATH: g++ cmake ninja make pkg-config", result.stdout)

    def test_refuses_what_it_does_not_know(self):
        self.assertEqual(self.machine.run("--frob").returncode, 2)
        self.assertEqual(self.machine.run("--for", "frob").returncode, 1)
        self.assertEqual(self.machine.run("--for").returncode, 1)


if __name__ == "__main__":
    unittest.main()
