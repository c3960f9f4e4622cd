"""features.jsonl: what the reference library makes of small tokenizer.json files, one feature each.

    python make_features.py          (needs the PyPI packages tokenizers 0.23 and sentencepiece)

One line per file: `name`, `base` (a key of features_base.json), `patch` (top-level fields that replace those of
the base; `model` is merged), and `cases`: `text`, `ids` (control tokens parsed, nothing added), `ids_added` (with what
the post-processor adds), `ids_plain` (control tokens not parsed; where that differs, but not for Unigram), `decoded` (of `ids`).
"""

import base64
import io
import json
import os

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = [
    "The keeper of the lamp counted the ships that came in the night, and wrote their names in a book with a blue cover.",
    "When the wind was in the north he counted them twice. It's said that he didn't sleep, that he wouldn't, that he'd rather walk.",
    "In 1984 there were 365 nights and 1,203 ships; in 1985 there were 366 and 1,190. Nobody knows why: the book doesn't say.",
    "def count(ships):\n    total = 0\n    for ship in ships:\n        total += ship.size\n    return total\n",
    "naïve café, über, señor, Ærø, Straße; 东京 北京 日本語 한국어 Ελληνικά русский язык",
] * 4

TEXTS = [
    "", " ", "  ", "a", "The ship", " The ship", "the ship ", "  the   ships  ", "The ships' book, isn't it?", "IT'S WE'LL don't I'm 'tis",
    "line one\nline two\r\n\r\n  line three\n", "\t\tfor ship in ships:\n\t\t\treturn\n", "tail   \n   head", "1", "12", "123", "1234567", "3.14159", "in 1984, 1,203 ships",
    "x1y22z333", "naïve café", "nai\u0308ve cafe\u0301", "ÅNGSTRÖM \u212b İstanbul ΣΊΣΥΦΟΣ ẞ", "ﬁne ½ ² ① Ⅷ ｆｕｌｌ （４）", "東京とkyoto 한국어", "e\u0301\u0323 q\u0307\u0323 \u0344",
    "😀 family 👨‍👩‍👧 🏳️‍🌈", "\u00a0nbsp\u3000wide\u2028sep\u200bzero", "...!?,;:-_()[]{}<>/\\|", "snake_case camelCase SCREAMING_CASE", "a\u2581b \u2581c", "<0x41> <0xZZ>", "\ufeffbom \u0000nul \u0007bell",
    "<s>", "a <s> b", "<s>the<s>", "the <mask> ship", "the<mask>ship", "the  <mask>  ship", "foo xfoo foox foo_ (foo) FOO foo", "bar  bar\tbar", "ship<sep>ship <sep> ship", "<s><mask>foo<sep>bar",
    "kelvin \u212a 'ſ 'S", "हिन्दी ที่ Z͑ͫ̓ͪ", "http://example.org/a?b=c#d", "ab" * 20, "   " * 10 + "x",
]


def byte_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + 90, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    base = json.loads(tokenizer.to_str())
    base["pre_tokenizer"] = byte_level(False, True)
    base["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return base


def char_bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=190, special_tokens=["<unk>", "<s>"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    base = json.loads(tokenizer.to_str())
    base["pre_tokenizer"] = metaspace("always")
    base["decoder"] = metaspace("always")
    return base


def fallback_bpe():
    base = char_bpe()
    vocab = {"<unk>": 0, "<s>": 1}
    vocab.update({f"<0x{b:02X}>": b + 2 for b in range(256)})
    for piece in sorted(base["model"]["vocab"], key=base["model"]["vocab"].get):
        vocab.setdefault(piece, len(vocab))
    base["model"].update(vocab=vocab, byte_fallback=True, fuse_unk=True)
    return base


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    base = json.loads(tokenizer.to_str())
    base["model"]["vocab"] = [[piece, round(score, 6)] for piece, score in base["model"]["vocab"]]
    base["decoder"] = metaspace("always")
    return base


def byte_level(prefix_space, use_regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": use_regex}


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def added(token_id, content, **flags):
    token = {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**token, **flags}


def charsmap():
    """SentencePiece's nmt_nfkc map, cut out of a model trained here."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=120, normalization_rule_name="nmt_nfkc", minloglevel=2)
    from sentencepiece import sentencepiece_model_pb2 as proto
    parsed = proto.ModelProto()
    parsed.ParseFromString(model.getvalue())
    return parsed.normalizer_spec.precompiled_charsmap


def small_charsmap():
    """The same double array with a few rules of our own would need a builder; the real one is cut to a part that fits a test file."""
    return base64.b64encode(charsmap()).decode()


def features(bases):
    n = {name: max(base["model"]["vocab"].values()) + 1 if isinstance(base["model"]["vocab"], dict) else len(base["model"]["vocab"]) for name, base in bases.items()}
    b, c, f, u = n["bytes"], n["chars"], n["fallback"], n["unigram"]
    ascii_split = lambda *args, **kw: {"pre_tokenizer": sequence("pretokenizers", split(*args, **kw), byte_level(False, False))}

    yield "byte-level", "bytes", {}
    yield "byte-level-prefix-space", "bytes", {"pre_tokenizer": byte_level(True, True)}
    yield "byte-level-no-regex", "bytes", {"pre_tokenizer": byte_level(False, False)}
    yield "byte-level-prefix-no-regex", "bytes", {"pre_tokenizer": byte_level(True, False)}
    yield "byte-level-normalizer", "bytes", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}
    yield "byte-level-normalizer-split", "bytes", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": split("Ġ", kind="String", behavior="MergedWithNext")}
    yield "ignore-merges", "bytes", {"model": {"ignore_merges": True}}
    yield "string-merges", "bytes", {"model": {"merges": [" ".join(m) for m in bases["bytes"]["model"]["merges"]]}}
    for behavior in "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous":
        for invert in False, True:
            yield f"split-{behavior}-{invert}", "bytes", ascii_split("[aeiou]|\\s", behavior, invert)
        yield f"split-text-{behavior}", "bytes", ascii_split("s", behavior, kind="String")
    yield "digits", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, byte_level(False, True))}
    yield "digits-individual", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level(False, True))}
    for behavior in "Isolated", "Contiguous", "Removed", "MergedWithPrevious":
        yield f"punctuation-{behavior}", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": behavior}, byte_level(False, False))}
    for kind in "Whitespace", "WhitespaceSplit", "BertPreTokenizer":
        yield kind, "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": kind}, byte_level(False, False))}
    yield "char-delimiter", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "CharDelimiterSplit", "delimiter": "s"}, byte_level(False, False))}
    yield "falcon", "bytes", {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(False, True), {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))}
    for name, pattern in {
            "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            "qwen35": r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            "cl100k-possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
            "line-end": r"\s+$|[a-z]+$", "lazy": r"[a-z]+?s|.", "look-behind": r"(?<=s)[a-z ]+", "word-boundary": r"\b\w", "line-start": r"^\s*\w+", "any": r"(?:.|\n)", "scripts": r"\p{Han}+|\p{Hiragana}+|\p{Hangul}",
            "look-ahead-two": r"s(?=hi)|e(?!\w\w)", "intersection": r"[\p{L}&&[^a-mA-M]]+", "nested-class": r"[[a-c][x-z]\d]+", "alternate-empty": r"s|", "star": r"\d*", "nested-repeat": r"(?:a|ab)*b|(?:[0-9]{2}){1,2}",
            "dotted": r"a.|\u0041\x62|\x{1F600}", "posix": r"[[:alpha:]]+|[[:digit:]]+", "negated-property": r"\p{^L}+|\P{N}", "flags": r"(?i)THE|ship(?-i:S)", "white-space": r"\s", "not-white-space": r"\S+", "word": r"\w+|\W", "digit": r"\d+|\D"}.items():
        yield f"regex-{name}", "bytes", ascii_split(pattern)
    yield "metaspace-always", "chars", {}
    for scheme in "first", "never":
        yield f"metaspace-{scheme}", "chars", {"pre_tokenizer": metaspace(scheme), "decoder": metaspace(scheme)}
    yield "metaspace-no-split", "chars", {"pre_tokenizer": metaspace("first", False)}
    yield "metaspace-legacy", "chars", {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False, "prepend_scheme": "never"}}
    yield "fuse-unknown", "chars", {"model": {"fuse_unk": True}}
    yield "no-unknown", "chars", {"model": {"unk_token": None}}
    yield "no-decoder", "chars", {"decoder": None}
    for form in "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt":
        yield form, "bytes", {"normalizer": {"type": form}}
    yield "strip-accents", "bytes", {"normalizer": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "NFC"})}
    yield "strip", "bytes", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}
    yield "strip-right", "bytes", {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}}
    yield "prepend", "bytes", {"normalizer": {"type": "Prepend", "prepend": "▁"}}
    yield "replace-text", "bytes", {"normalizer": {"type": "Replace", "pattern": {"String": "ship"}, "content": "boat"}}
    yield "replace-regex", "bytes", {"normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}}
    for lower in False, True:
        for accents in None, False, True:
            yield f"bert-{lower}-{accents}", "bytes", {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": accents, "lowercase": lower}}
    tokens = [
        added(b, "<s>", special=True), added(b + 1, "<mask>", special=True, lstrip=True), added(b + 2, "foo", single_word=True), added(b + 3, "<sep>", rstrip=True, normalized=False),
        added(b + 4, "bar", lstrip=True, rstrip=True), added(b + 5, "ship", normalized=True)]
    yield "added", "bytes", {"added_tokens": tokens}
    yield "added-lower-case", "bytes", {"added_tokens": tokens, "normalizer": {"type": "Lowercase"}}
    yield "added-prepend", "fallback", {"added_tokens": [*bases["fallback"]["added_tokens"], added(f, "foo"), added(f + 1, "ship", normalized=True)], "pre_tokenizer": None,
                                        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})}
    yield "added-overlapping", "bytes", {"added_tokens": [added(b, "the"), added(b + 1, "the s"), added(b + 2, "he ship"), added(b + 3, "ships", single_word=True), added(b + 4, "  ")]}
    sentencepiece_decoder = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    legacy = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    yield "llama2-legacy", "fallback", {"normalizer": legacy, "pre_tokenizer": None, "decoder": sentencepiece_decoder}
    yield "llama2-first", "fallback", {"pre_tokenizer": metaspace("first", False), "decoder": sentencepiece_decoder}
    yield "gemma", "fallback", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": split(" ", "MergedWithPrevious", kind="String"),
                                "decoder": sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"})}
    yield "unigram", "unigram", {}
    yield "unigram-nmt-nfkc", "unigram", {"normalizer": sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})}
    yield "unigram-first", "unigram", {"pre_tokenizer": metaspace("first")}
    fallback_vocab = [*bases["unigram"]["model"]["vocab"], *[[f"<0x{i:02X}>", 0.0] for i in range(256)]]
    yield "unigram-byte-fallback", "unigram", {"model": {"vocab": fallback_vocab, "byte_fallback": True}, "decoder": sentencepiece_decoder}
    yield "template", "bytes", {"added_tokens": tokens, "post_processor": {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<mask>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [b], "tokens": ["<s>"]}, "<mask>": {"id": "<mask>", "ids": [b + 1, b], "tokens": ["<mask>", "<s>"]}}}}
    yield "bert-processing", "bytes", {"added_tokens": tokens, "post_processor": {"type": "BertProcessing", "sep": ["<sep>", b + 3], "cls": ["<s>", b]}}
    yield "roberta-processing", "bytes", {"added_tokens": tokens, "post_processor": {"type": "RobertaProcessing", "sep": ["<sep>", b + 3], "cls": ["<s>", b], "trim_offsets": True, "add_prefix_space": False}}
    suffixed = {"<unk>": 0}
    for char in "abcdefghijklmnopqrstuvwxyz'":
        suffixed[char] = len(suffixed)
        suffixed[char + "</w>"] = len(suffixed)
    merges = [["t", "h"], ["th", "e</w>"], ["s", "h"], ["i", "p</w>"], ["sh", "ip</w>"], ["i", "n</w>"], ["h", "i"]]
    for left, right in merges:
        suffixed[left + right] = len(suffixed)
    yield "end-of-word-suffix", "chars", {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "added_tokens": [],
                                          "model": {"vocab": suffixed, "merges": merges, "end_of_word_suffix": "</w>"}}
    prefixed = {"<unk>": 0}
    for char in "abcdefghijklmnopqrstuvwxyz'":
        prefixed[char] = len(prefixed)
        prefixed["##" + char] = len(prefixed)
    merges = [["t", "##h"], ["th", "##e"], ["s", "##h"], ["##i", "##p"], ["sh", "##ip"], ["##h", "##i"]]
    for left, right in merges:
        prefixed.setdefault(left + right[2:], len(prefixed))
    yield "continuing-prefix", "chars", {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "added_tokens": [],
                                         "model": {"vocab": prefixed, "merges": merges, "continuing_subword_prefix": "##"}}
    yield "precompiled", "bytes", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "@charsmap"}}
    yield "precompiled-xlm", "unigram", {"normalizer": sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": "@charsmap"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})}


def patched(base, patch):
    result = json.loads(json.dumps(base))
    for key, value in patch.items():
        if key == "model":
            result["model"].update(value)
        else:
            result[key] = value
    return result


def main():
    bases = {"bytes": byte_bpe(), "chars": char_bpe(), "fallback": fallback_bpe(), "unigram": unigram()}
    bases["charsmap"] = small_charsmap()
    with open(f"{HERE}/features_base.json", "w") as out:
        json.dump(bases, out)
    map_text = bases.pop("charsmap")
    with open(f"{HERE}/features.jsonl", "w") as out:
        for name, base, patch in features(bases):
            text = json.dumps(patched(bases[base], patch)).replace("@charsmap", map_text)
            tokenizer = Tokenizer.from_str(text)
            plain = Tokenizer.from_str(text)
            plain.encode_special_tokens = True
            cases = []
            # Where the reference library gives a control or byte token for a text that spells it, Polysil differs on purpose.
            for case in [case for case in TEXTS if not (name == "unigram-byte-fallback" and "<0x" in case)]:
                ids = tokenizer.encode(case, add_special_tokens=False).ids
                row = {"text": case, "ids": ids, "ids_added": tokenizer.encode(case).ids, "ids_plain": plain.encode(case, add_special_tokens=False).ids,
                       "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
                if row["ids_added"] == ids:
                    del row["ids_added"]
                if row["ids_plain"] == ids or base == "unigram":
                    del row["ids_plain"]
                cases.append(row)
            out.write(json.dumps({"name": name, "base": base, "patch": patch, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
