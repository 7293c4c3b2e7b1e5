#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# How many bytes of a kernel's machine code each line of source became, as a tree: a line, and under
# it the lines of what was inlined there. Most of a launch is code that runs once and has to be
# fetched for that, so that what stands in a kernel twice costs time, run or not (docs/gpu.md).
# Needs no GPU and no disassembler.
#
#   nvcc -std=c++20 -O2 -lineinfo -Isrc -gencode arch=compute_90a,code=sm_90a -cubin -o a.cubin \
#        src/cuda/attention_launch.cu
#   tools/cuda_code_size.py a.cubin --kernel attention_kernel --depth 4
#
# A cubin is an ELF file with DWARF line tables. nvcc adds an operation to those (0x90): the rows
# from here on were inlined at the place that row `context` says.

import argparse
import collections
import struct
import sys

INLINED = 0x90
Row = collections.namedtuple("Row", "address file line context")


class BadCubin(Exception):
    pass


def name_at(data, offset):
    return data[offset:data.index(b"\0", offset)].decode()


def sections_of(data):
    """Bytes of each section, by its name."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        raise BadCubin("not a 64-bit ELF file")
    segments, table = struct.unpack_from("<QQ", data, 0x20)
    segment_bytes, segment_count = struct.unpack_from("<HH", data, 0x36)
    if segments + segment_bytes * segment_count > len(data):
        raise BadCubin("cut short")
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    entries = [struct.unpack_from("<IIQQQQ", data, table + index * entry_bytes)
               for index in range(count)]
    names = entries[names_index][4]
    sections = {}
    for name, kind, _, _, offset, size in entries:
        if kind != 8 and offset + size > len(data):  # 8 has no bytes in the file
            raise BadCubin("cut short")
        sections[name_at(data, names + name)] = b"" if kind == 8 else data[offset:offset + size]
    return sections


def functions_at(sections):
    """Which function's address goes where in the line tables."""
    relocations, symbols = sections.get(".rela.debug_line", b""), sections[".symtab"]
    names = {}
    for at in range(0, len(relocations), 24):
        offset, info = struct.unpack_from("<QQ", relocations, at)
        (name,) = struct.unpack_from("<I", symbols, (info >> 32) * 24)
        names[offset] = name_at(sections[".strtab"], name)
    return names


class Reader:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def number(self, form):
        self.at += struct.calcsize(form)
        return struct.unpack_from(form, self.data, self.at - struct.calcsize(form))[0]

    def leb(self, is_signed=False):
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if is_signed and byte & 0x40 else value

    def text(self):
        begin = self.at
        self.at = self.data.index(b"\0", begin) + 1
        return self.data[begin:self.at - 1].decode()


def read_header(reader):
    """Of a line table: what its operations mean. The reader is at the first of them then."""
    version, length = reader.number("<H"), reader.number("<I")
    if version not in (2, 3, 4):
        raise BadCubin(f"a line table of DWARF {version}; 2 to 4 are known")
    program = reader.at + length
    unit = reader.byte()
    if version == 4:
        reader.byte()
    reader.byte()
    header = {"unit": unit, "base": reader.number("<b"), "range": reader.byte()}
    header["first"] = reader.byte()
    header["operands"] = [reader.byte() for _ in range(header["first"] - 1)]
    while reader.text():  # folders
        pass
    files = [""]
    while True:
        name = reader.text()
        if not name:
            break
        files.append(name.rsplit("/", 1)[-1])
        for _ in range(3):
            reader.leb()
    header["files"] = files
    reader.at = program
    return header


def read_rows(reader, header, end, names):
    """The rows of each function."""
    functions, rows, function = {}, [], ""
    address, file, line, context = 0, 1, 1, 0
    while reader.at < end:
        operation = reader.byte()
        if operation >= header["first"]:
            step = operation - header["first"]
            address += step // header["range"] * header["unit"]
            line += header["base"] + step % header["range"]
            rows.append(Row(address, header["files"][file], line, context))
        elif operation == 0:
            length = reader.leb()
            after = reader.at + length
            kind = reader.byte()
            if kind == 1:
                functions[function] = rows
                rows = []
                address, file, line, context = 0, 1, 1, 0
            elif kind == 2:
                function = names.get(reader.at, "")
                address = reader.number("<Q")
            elif kind == INLINED:  # its operands lie behind its length
                context = reader.leb()
                reader.leb()
                after = reader.at
            reader.at = after
        elif operation == 1:
            rows.append(Row(address, header["files"][file], line, context))
        elif operation == 2:
            address += reader.leb() * header["unit"]
        elif operation == 3:
            line += reader.leb(is_signed=True)
        elif operation == 4:
            file = reader.leb()
        elif operation == 8:
            address += (255 - header["first"]) // header["range"] * header["unit"]
        elif operation == 9:
            address += reader.number("<H")
        else:
            for _ in range(header["operands"][operation - 1]):
                reader.leb()
    return functions


def functions_of(data):
    """(name, bytes of code, rows) of each function."""
    sections = sections_of(data)
    if ".debug_line" not in sections:
        raise BadCubin("no line tables; compile with -lineinfo")
    names = functions_at(sections)
    rows = {}
    reader = Reader(sections[".debug_line"], 0)
    while reader.at < len(reader.data):
        length = reader.number("<I")
        end = reader.at + length
        rows.update(read_rows(reader, read_header(reader), end, names))
    codes = [(name[len(".text."):], len(code)) for name, code in sections.items()
             if name.startswith(".text.")]
    return [(name, size, rows[name]) for name, size in codes if name in rows]


def path_of(rows, index):
    """From the kernel's own line to the innermost one."""
    path = []
    while True:
        row = rows[index]
        path.append((row.file, row.line))
        if row.context == 0 or len(path) > len(rows):
            return tuple(reversed(path))
        index = row.context - 1


def bytes_by_path(rows, size):
    """Of every path, with all that was inlined below it."""
    total = collections.Counter()
    for index, row in enumerate(rows):
        after = rows[index + 1].address if index + 1 < len(rows) else size
        path = path_of(rows, index)
        for depth in range(1, len(path) + 1):
            total[path[:depth]] += after - row.address
    return total


def tree_lines(total, depth, least, prefix=()):
    below = [(-count, path) for path, count in total.items()
             if len(path) == len(prefix) + 1 and path[:-1] == prefix and count >= least]
    for count, path in sorted(below):
        yield f"{-count:8}  {'  ' * len(prefix)}{path[-1][0]}:{path[-1][1]}"
        if len(path) < depth:
            yield from tree_lines(total, depth, least, path)


def main(arguments):
    parser = argparse.ArgumentParser(description="bytes of code by line of source")
    parser.add_argument("cubin")
    parser.add_argument("--kernel", default="", help="only functions whose name has this in it")
    parser.add_argument("--depth", type=int, default=3, help="of what was inlined (3)")
    parser.add_argument("--least", type=int, default=256, help="bytes of a line to be shown (256)")
    options = parser.parse_args(arguments)
    try:
        with open(options.cubin, "rb") as file:
            functions = functions_of(file.read())
    except (OSError, BadCubin) as error:
        print(f"cuda_code_size: {options.cubin}: {error}", file=sys.stderr)
        return 1
    except (struct.error, IndexError, KeyError, ValueError):
        print(f"cuda_code_size: {options.cubin}: cut short or damaged", file=sys.stderr)
        return 1
    chosen = [function for function in functions if options.kernel in function[0]]
    if not chosen:
        print(f"cuda_code_size: {options.cubin}: none of {len(functions)} functions has "
              f"'{options.kernel}' in its name", file=sys.stderr)
        return 1
    for name, size, rows in chosen:
        print(f"{size:8}  {name}")
        for line in tree_lines(bytes_by_path(rows, size), options.depth, options.least):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
