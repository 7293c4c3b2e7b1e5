# SPDX-License-Identifier: Apache-2.0
#
# Makes tests/data/qwen3_token_ids.json: awkward strings and the ids that Hugging Face `tokenizers`
# gives them with the real Qwen3 tokenizer.json. Run where that package is:
#
#   python3 tests/data/make_token_ids.py tokenizer.json tests/data/qwen3_token_ids.json
#
# Each entry is {"text": ..., "ids": [...], "decoded": ...} (decoded: special tokens kept).

import json
import random
import sys

import tokenizers

WORDS = [
    "", " ", "  ", "   x", "x   ", "\n", "\n\n", " \n", "\n ", "\t", "\r\n", "a\r\nb", "\u00a0",
    "\u2003x", "Hello", " Hello", "Hello, world!", "hello world", "HELLO WORLD", "I'm", "I'M",
    "don't", "we'll", "WE'LL", "they've", "it's 's 'S", "'re're", "x'd y'll", "3.14159",
    "1234567890", "1 2 3", "12ab34", "$100.00", "50%", "a_b_c", "snake_case camelCase PascalCase",
    "foo.bar()", "x=y+z;", "!!!", "?!?!", "...", "…", "--", "—", "(a)[b]{c}", "<tag>", "</tag>",
    "a<b>c", "//", "/* c */", "#include <vector>",
    "for (int i = 0; i < n; ++i) {\n    sum += a[i];\n}\n", "def f(x):\n\treturn x ** 2\n",
    "https://example.org/a?b=c&d=e#f", "user@example.org", "C:\\path\\file", "\\n \\t", "`code`",
    "**bold** _it_", "| a | b |\n|---|---|\n", "- item\n  - sub\n", "1. one\n2. two\n", "你好",
    "你好，世界！", "今天天气很好。", "日本語のテキスト", "カタカナ ひらがな 漢字", "한국어 텍스트", "안녕하세요", "Привет, мир!",
    "Ελληνικά", "العربية", "مرحبا بالعالم", "עברית", "हिन्दी में", "ภาษาไทย", "ქართული", "አማርኛ",
    "বাংলা", "தமிழ்", "Tiếng Việt", "naïve café", "Ångström", "Straße", "İstanbul", "ñandú",
    "œuvre", "ﬁ ligature", "ǅ", "e\u0301", "é", "A\u030a", "Å", "n\u0303", "\u1100\u1161", "가",
    "\u0958", "q\u0307\u0323", "q\u0323\u0307", "😀", "😀😃😄", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "☃️",
    "❤️‍🔥", "a😀b", " 😀", "½ ² ³ ①", "Ⅷ", "٣٤٥", "１２３", "∑∫∂√∞≠≤", "αβγ∈ℝ", "x²+y²=z²", "10⁻³",
    "→⇒↔", "█▓▒░", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "𠜎𠜱", "\u200b", "a\u200bb", "\u200d", "\ufeff", "\ufeffBOM",
    "\u202eRTL", "\u0000", "a\u0000b", "\u0001\u0002", "\u007f", "\u0085", "\u2028x\u2029",
    "\ufffd", "\uffff", "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "a<|im_end|>b",
    "<|im_end|><|im_end|>", " <|im_start|> ", "<|im_start", "|im_end|>", "<think>", "</think>",
    "<think>\n\n</think>\n\n", "<tool_call>", "</tool_call>", "<tool_response>",
    "<|vision_start|>", "<|fim_prefix|>x<|fim_suffix|>y<|fim_middle|>", "<|object_ref_start|>",
    "<|file_sep|>", "<|repo_name|>", "<|ENDOFTEXT|>", "<|endoftext|", "x<|endoftext|>\n",
    "supercalifragilisticexpialidocious", "Donaudampfschifffahrtsgesellschaft",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababab", "zzzzzzzzzzzzzzzz",
    "\n\n\n\n\n\n", "                                ", "\t\t\t\t", " \t \n \t ", "x\n\n\ny",
    "x \n y", "  leading", "trailing  ", "a  b   c    d", "a\n  b\n    c",
    "The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs.",
    "It was the best of times, it was the worst of times", "0x1F600 0b1010 1e-9 1_000_000",
    "v1.2.3-rc.4+build.5", "2024-02-29T23:59:59Z", "12:34:56.789", "+1 (555) 010-9999",
    "\"quoted\" 'single' “curly” ‘x’", "O'Neil's", "rock'n'roll", "y'all'd've", "'tis", "''",
    "'''", "l'été", "d'accord",
]


def random_texts(count):
    generator = random.Random(20261115)
    ranges = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA),
              (0x620, 0x64A), (0x900, 0x97F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2190, 0x21FF),
              (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F6FF),
              (0x20000, 0x2A6DF), (0x300, 0x36F)]
    texts = []
    for _ in range(count):
        pieces = []
        for _ in range(generator.randint(1, 12)):
            low, high = generator.choice(ranges)
            pieces += [chr(generator.randint(low, high)) for _ in range(generator.randint(1, 6))]
            pieces.append(generator.choice(["", "", " ", "  ", "\n", "'s", "1", "12"]))
        texts.append("".join(pieces))
    for _ in range(count // 2):
        texts.append("".join(generator.choice(WORDS) for _ in range(generator.randint(2, 6))))
    return texts


def main():
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    entries = []
    for text in WORDS + random_texts(160):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        entries.append({"text": text, "ids": ids,
                        "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    with open(sys.argv[2], "w", encoding="ascii") as out:
        out.write("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
    print(len(entries), "strings", "tokenizers", tokenizers.__version__)


main()
