#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The house rules that no compiler checks, as a test: the include order between modules, file sizes,
# names, leftovers, dead files, paths in the docs. docs/STYLE.md gives the reasons.
#
# usage: tools/tidy.py [ROOT]   prints "file:line: sentence" for each finding; exit status 1

import io
import os
import posixpath
import re
import subprocess
import sys
import tokenize
from pathlib import Path

# Which modules of src/ a module may include. Reading order of the whole program.
MAY_INCLUDE = {
    "base": set(),
    "trace": {"base"},
    "formats": {"base", "trace"},
    "sim": {"base", "trace"},
    "analysis": {"base", "trace", "sim"},
    "kernels": {"base"},
    "machine": {"base", "kernels"},
    "report": {"base", "trace", "formats", "sim", "analysis", "machine"},
    "graph": {"base", "trace"},
    "runtime": {"base", "trace", "graph"},
    "cuda": {"base", "trace", "graph", "kernels"},
    "model": {"base", "trace", "analysis", "graph", "runtime", "sim", "kernels", "machine", "cuda"},
    "profile": {"base", "trace", "analysis", "report", "graph", "runtime", "kernels", "machine",
                "cuda", "model"},
    "serve": {"base", "trace", "graph", "runtime", "sim", "kernels", "cuda", "model"},
}
MAY_INCLUDE["cli"] = set(MAY_INCLUDE)

# Files that may be longer than MAX_LINES, and why.
LONG_FILES = {}
MAX_LINES = 600
MAX_WIDTH = 100
MAX_BYTES = 256 * 1024

CXX = (".h", ".cc", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".mjs", ".js")
CMAKE = (".cmake", "CMakeLists.txt")
BANNED = re.compile(r"fast|optimi[sz]ed|utils?|helpers?|managers?|misc", re.IGNORECASE)
MARKER = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
NOT_OURS = {".git", "build", "node_modules", "__pycache__"}
REPOSITORY_FOLDERS = {"src", "include", "docs", "tests", "tools", "cmake", "bench", "examples",
                      "web", ".ci"}


def list_files(root):
    """Paths in the repository: what git knows or would add; without git, what lies there."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        output = subprocess.run(command, check=True, capture_output=True).stdout.decode()
        paths = output.split("\0")
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in NOT_OURS]
            paths += [(Path(folder) / name).relative_to(root).as_posix() for name in names]
    return sorted({path for path in paths if path and (root / path).is_file()})


class Repository:
    def __init__(self, root):
        self.root = root
        self.paths = list_files(root)
        self.texts = {path: self.read(path) for path in self.paths if self.is_code(path)
                      or path.endswith(".md")}

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def is_code(self, path):
        if path.endswith(CXX + SCRIPTS + CMAKE):
            return True
        if "." in posixpath.basename(path) or path.startswith("tests/"):
            return False
        with open(self.root / path, "rb") as file:
            return file.read(2) == b"#!"

    def code(self, suffixes=None):
        """(path, text) of the code; with `suffixes` only of files that end so."""
        for path, text in self.texts.items():
            if path.endswith(suffixes) if suffixes else not path.endswith(".md"):
                yield path, text


def module_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def includes_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def check_include_order(repository):
    for path, text in repository.code(CXX):
        module = module_of(path)
        public = path.startswith("include/")
        if module is None and not public:
            continue
        if module and module not in MAY_INCLUDE:
            yield path, 1, f"module '{module}' has no line in MAY_INCLUDE of tools/tidy.py"
            continue
        for number, quote, name in includes_of(text):
            target = name.split("/")[0]
            if public and target in MAY_INCLUDE and "/" in name:
                yield path, number, f"a public header includes {name}, which is not installed"
            if public or quote == "<":
                continue
            target = "trace" if target == "gapless" else target
            if target in MAY_INCLUDE and target not in MAY_INCLUDE[module] | {module}:
                yield path, number, f"{module} may not include {name}"


def check_own_header(repository):
    for path, text in repository.code((".cc", ".cu")):
        header = re.sub(r"\.(cc|cu)$", ".h", path)
        if header not in repository.texts or not path.startswith("src/"):
            continue
        first = next(includes_of(text), (1, "", "nothing"))
        if first[2] != header[len("src/"):]:
            yield path, first[0], f"the first include is {first[2]}; it must be its own header"


def check_lines(repository):
    for path, text in repository.texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            if MARKER.search(line):
                yield path, number, "leftover marker; open an issue instead"
            if path.endswith(".md"):
                continue
            if len(line) > MAX_WIDTH:
                yield path, number, f"{len(line)} columns; the limit is {MAX_WIDTH}"
            if "\t" in line:
                yield path, number, "has a tab"
        count = text.count("\n")
        if count > MAX_LINES and path not in LONG_FILES and not path.endswith(".md"):
            yield path, MAX_LINES, f"{count} lines; the limit is {MAX_LINES}: split the file"
    for path in sorted(set(LONG_FILES) - set(repository.paths)):
        yield "tools/tidy.py", 1, f"LONG_FILES names {path}, which does not exist"


def check_first_lines(repository):
    for path, text in repository.code():
        lines = text.split("\n")
        first = 1 if lines[0].startswith("#!") and len(lines) > 1 else 0
        if "SPDX-License-Identifier: Apache-2.0" not in lines[first] and not path.endswith(CMAKE):
            yield path, first + 1, "must start with the SPDX line"
        if path.endswith((".h", ".cuh")) and "#pragma once" not in lines:
            yield path, 1, "has no #pragma once"


def words_of(identifier):
    """'EventRing_bytes' -> Event, Ring, bytes."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", identifier)


def identifiers_of(path, text):
    """(line, identifier) of C++ and Python, without comments and texts."""
    if path.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
        return
    aside = re.compile(r'R"([^(\s]*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|#\s*include[^\n]*'
                       r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    text = aside.sub(lambda match: "\n" * match.group().count("\n") + " ", text)
    for number, line in enumerate(text.split("\n"), 1):
        for identifier in re.findall(r"[A-Za-z_]\w*", line):
            yield number, identifier


def check_names(repository):
    for path in repository.paths:
        bad = [word for word in words_of(path) if BANNED.fullmatch(word)]
        if bad and not path.startswith(("tests/data/", "tests/fuzz/corpus/")):
            yield path, 1, f"file name says '{bad[0]}': name what it does"
    for path, text in repository.code(CXX + (".py",)):
        for number, identifier in identifiers_of(path, text):
            bad = [word for word in words_of(identifier) if BANNED.fullmatch(word)]
            if bad and not identifier.startswith(("int_", "uint_")):
                yield path, number, f"{identifier} says '{bad[0]}': name what it does"


def check_sizes(repository):
    for path in repository.paths:
        size = (repository.root / path).stat().st_size
        if size > MAX_BYTES:
            yield path, 1, f"{size} bytes; the limit is {MAX_BYTES}: generate it or fetch it"


def check_listed_sources(repository):
    listed, words = set(), {}
    for path, text in repository.code(("CMakeLists.txt",)):
        folder = posixpath.dirname(path)
        text = re.sub(r"#.*", "", text)
        text = re.sub(r"\$\{CMAKE_CURRENT_SOURCE_DIR\}/", "", text)
        words[folder] = set(re.findall(r"\w+", text))
        for name in re.findall(r"[\w./${}-]+\.(?:cc|cu)\b", text):
            at_root = name.startswith("${PROJECT_SOURCE_DIR}/")
            base = "" if at_root else folder
            name = name.replace("${PROJECT_SOURCE_DIR}/", "")
            listed.add(posixpath.normpath(posixpath.join(base, name)))
    for path, _ in repository.code((".cc", ".cu")):
        folder, name = posixpath.split(path)
        stem = name.rsplit(".", 1)[0]
        # Fuzz targets are made in a loop over their names.
        in_loop = stem.endswith("_fuzz") and stem[:-len("_fuzz")] in words.get(folder, set())
        if path not in listed and not in_loop:
            yield path, 1, "is in no CMakeLists.txt: list it or delete it"


def check_one_definition(repository):
    """Types of one name in two headers are one to the linker, which then takes either's code."""
    places = {}
    for path, text in repository.code((".h", ".cuh")):
        unnamed = False
        for number, line in enumerate(text.splitlines(), 1):
            if line == "namespace {":
                unnamed = True
            elif line == "}  // namespace":
                unnamed = False
            match = re.match(r"(?:class|struct|enum class) (?:alignas\(\w+\) )?(\w+)[^;]*$", line)
            if match and not unnamed:
                first = places.setdefault(match.group(1), path)
                if first != path:
                    yield path, number, f"{match.group(1)} is also a type of {first}"


def check_doc_paths(repository):
    known = set(repository.paths)
    for path in repository.paths:
        known.update(parent.as_posix() for parent in Path(path).parents)
    for path, text in repository.code((".md",)):
        for number, line in enumerate(text.split("\n"), 1):
            for name in re.findall(r"`(\.?[\w-]+/[\w./-]*)`", line):
                if name.split("/")[0] in REPOSITORY_FOLDERS and name.rstrip("/") not in known:
                    yield path, number, f"names {name}, which does not exist"
            for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", line):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
                if target not in known:
                    yield path, number, f"links to {link}, which does not exist"


def check_doc_tests(repository):
    known = set()
    for _, text in repository.code((".cc",)):
        known.update(re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text))
    for path, text in repository.code((".md",)):
        for number, line in enumerate(text.split("\n"), 1):
            for suite, name in re.findall(r"`(?:\w+/)?([A-Z]\w+)\.([A-Z]\w+)`", line):
                if (suite, name) not in known:
                    yield path, number, f"names the test {suite}.{name}, which does not exist"


RULES = [check_include_order, check_own_header, check_one_definition, check_lines,
         check_first_lines, check_names, check_sizes, check_listed_sources, check_doc_paths,
         check_doc_tests]


def findings_of(root):
    repository = Repository(Path(root))
    return repository, sorted({finding for rule in RULES for finding in rule(repository)})


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    repository, findings = findings_of(root)
    for path, line, sentence in findings:
        print(f"{path}:{line}: {sentence}")
    if findings:
        sys.exit(1)
    print(f"tidy: {len(repository.paths)} files follow the house rules")


if __name__ == "__main__":
    main()
