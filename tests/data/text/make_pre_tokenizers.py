"""pre_tokenizers.jsonl: how Python's regex module splits the texts of make_features.py by every list of expressions.

    python make_pre_tokenizers.py pre_tokenizers.json          (needs the PyPI package regex)

pre_tokenizers.json is the project's golden/templates file: the expressions by `tokenizer.ggml.pre`. One line per list:
`names`, `add_bos`, `ignore_merges`, `cases` (`text`, `pieces`).
"""

import ast
import json
import os
import sys

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = "<digits from the right>"


def texts():
    for node in ast.parse(open(f"{HERE}/make_features.py").read()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "TEXTS":
            yield from eval(compile(ast.Expression(node.value), "texts", "eval"))
    yield from ("12345678", "1234567 89", "٣٤٥٦", "a1234b", "12_3456", "1234é 5678 90½", "½123 4½567", "IMGIMGABCDZ <sentinel:12> IMGIMGX", "x  \u2003 y \n \n z", "Don'T we'Ll", "ÀÉîõü ЖЗИ жзи ǅ ʰ ª",
                "ABCdef GHIjkl's mnO", "中文字符,混合English和日本語カタカナ。한국어!", "  \r\n\t x", "#hash @at 'quote' \"double\" [b] {c} $5 <=> ^~|`", "a b c d", " leading.Trailing! ", "हिन्दी भाषा தமிழ் မြန်မာ ខ្មែរ", "…“”‘’—：；，、。", " " * 700 + "x", "\n" * 5 + " " * 5)


def split(pattern, pieces):
    if pattern == DIGITS:
        compiled = regex.compile(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", regex.V1)
    else:
        compiled = regex.compile(pattern, regex.V1)
    for piece in pieces:
        done = 0
        for match in compiled.finditer(piece):
            yield piece[done:match.start()]
            yield match.group()
            done = match.end()
        yield piece[done:]


def main():
    with open(f"{HERE}/pre_tokenizers.jsonl", "w") as out:
        for entry in json.load(open(sys.argv[1])):
            patterns = [entry["upstream_regex"]] if "upstream_regex" in entry else entry["regex"]
            patterns = [DIGITS if pattern == r"\p{AFMoE_digits}" else pattern for pattern in patterns]
            cases = []
            for text in texts():
                pieces = [text]
                for pattern in patterns:
                    pieces = [piece for piece in split(pattern, pieces) if piece]
                cases.append({"text": text, "pieces": [piece for piece in pieces if piece]})
            for group in entry["groups"]:
                out.write(json.dumps({"names": group["pre"], "add_bos": group.get("add_bos", False), "ignore_merges": group.get("ignore_merges", False), "cases": cases}) + "\n")
                cases = []  # once a list is enough


if __name__ == "__main__":
    main()
