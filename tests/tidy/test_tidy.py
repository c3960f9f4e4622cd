"""The checks of this folder: the checkout passes them, and each of them catches what it is for."""

import re
import subprocess
import textwrap
from pathlib import Path

import check_files
import check_layers
import pytest
import source_tree

ROOT = Path(__file__).resolve().parents[2]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def test_the_layers_of_the_checkout():
    problems = list(check_layers.check(ROOT))
    assert not problems, "\n".join(problems)


def test_the_files_of_the_checkout():
    problems = list(check_files.check(ROOT))
    assert not problems, "\n".join(problems)


def documented_layers():
    """The table of docs/architecture.md: layer -> (pub, priv)."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for row in re.findall(r"^\| ([a-z, ]+) \| ([^|]+) \| ([^|]+) \|$", text, re.M):
        sides = []
        for side in row[1:]:
            words = {word.strip() for word in re.sub(r"\(.*?\)", "", side).split(",")}
            sides.append({"*"} if words == {"all"} else words - {"\N{EN DASH}", "itself", ""})
        for layer in row[0].split(", "):
            yield layer, tuple(sides)


def test_the_table_for_people_is_the_table_for_the_check():
    documented = dict(documented_layers())
    table = check_layers.Table(ROOT / "tests" / "tidy" / "layers.txt")
    assert documented.pop("layer") == ({"pub of"}, {"priv of"})
    # kernels and the generated code of proto/ are no src/ folders; the page tells of them in words.
    for layer, (pub, priv) in documented.items():
        rules = table.layers.pop(layer)
        # Everybody may include its own headers; base and core say so, the others need not.
        assert set(rules["pub"]) - {"-"} == pub, layer
        assert set(rules["priv"]) - {layer, "kernels", "proto"} == priv - {layer}, layer
    assert not table.layers


HEAD = "// What it is.\n#pragma once\n"


@pytest.mark.parametrize(
    "name, text, problem",
    [
        (
            "src/kv/a.cc",
            '#include "text/b.h"\n',
            "src/kv/a.cc:1: layer 'kv' may not include src/text",
        ),
        ("src/kv/a.cc", "\n#include <thread>\n", "src/kv/a.cc:2: deciding code holds no <thread>"),
        ("src/sched/a.cc", "#include <chrono>\n", "deciding code holds no <chrono>"),
        ("src/engine/engine_core.cc", "#include <mutex>\n", "deciding code holds no <mutex>"),
        ("src/engine/a.cc", '#include "exec/b.h"\n', "layer 'engine' may not include src/exec"),
        ("src/server/a.cc", '#include "kv/b.h"\n', "layer 'server' may not include src/kv"),
        ("src/gateway/a.cc", "#include <grpcpp/grpcpp.h>\n", "layer 'gateway' may not use grpc"),
        ("src/core/a.cc", '#include "absl/x.h"\n', None),
        ("src/kv/a.cc", "#include <yaml-cpp/yaml.h>\n", "layer 'kv' may not use yaml"),
        ("src/kv/a.cc", "#include <what/ever.h>\n", "is of no library that layers.txt lists"),
        ("src/kv/a.cc", '#include "b.h"\n', '"b.h" is not a full path'),
        ("src/what/a.cc", "\n", "'what' is not a layer"),
        ("include/polysil/core/a.h", '#include "kv/b.h"\n', "a header of include/ may not include"),
        (
            "include/polysil/core/a.h",
            '#include "polysil/exec/b.h"\n',
            "layer 'core' may not include include/polysil/exec",
        ),
        ("kernels/cpu/a.cc", '#include "polysil/exec/b.h"\n', "layer 'kernels' may not include"),
        ("kernels/cpu/a.cc", "#include <immintrin.h>\n#include <cmath>\n", None),
        ("src/daemon/a.cc", '#include "kv/b.h"\n#include <yaml-cpp/yaml.h>\n', None),
        ("src/session/a.cc", '#include "text/b.h"\n', None),
        (
            "CMakeLists.txt",
            "add_layer(kv DEPS base text LIBS x)\n",
            "CMakeLists.txt:1: layer 'kv' may not link text",
        ),
    ],
)
def test_a_wrong_include_is_named(tmp_path, name, text, problem):
    write(
        tmp_path,
        {
            "src/text/b.h": HEAD,
            "src/kv/b.h": HEAD,
            "src/exec/b.h": HEAD,
            "include/polysil/exec/b.h": HEAD,
            name: text,
        },
    )
    problems = list(check_layers.check(tmp_path))
    if problem is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problem in problems[0]


def test_a_circle_of_layers_is_named(tmp_path):
    path = tmp_path / "layers.txt"
    path.write_text("layer a pub - priv b\nlayer b pub - priv a\nlayer c pub - priv -\n")
    assert list(check_layers.check_table(check_layers.Table(path))) == [
        "layers.txt: these layers include each other in a circle: a, b"
    ]


@pytest.mark.parametrize(
    "name, text, problem",
    [
        ("src/kv/a.cc", "// TO" "DO: later\n", "needs an issue number"),
        ("src/kv/a.cc", "// TO" "DO(#12): later\n", None),
        ("src/kv/a.h", HEAD + "#include <iostream>\n", "does not include <iostream>"),
        ("src/kv/a.h", "#pragma once\n", "begins with a comment"),
        ("src/kv/a.h", "// What.\n", "no #pragma once"),
        ("src/kv/a.cc", "int a = std::hash<int>()(1);\n", "std::hash differs"),
        ("src/gateway/a.cc", "int a = std::hash<int>()(1);\n", None),
        ("src/kv/a.cc", "// std::hash is not used here, nor throw\n", None),
        ("src/kv/a.cc", 'auto a = "throw std::hash";\n', None),
        ("src/kv/a.cc", "void F() { throw 1; }\n", "nothing is thrown"),
        ("src/kv/a.cc", "auto a = std::chrono::steady_clock::now();\n", "takes time and chance"),
        ("src/model/a.cc", 'auto a = getenv("A");\n', "no environment variables"),
        ("src/model/a.cc", "void F() { std::cout << 1; }\n", "nothing below daemon prints"),
        ("src/cli/a.cc", "void F() { std::cout << 1; }\n", None),
        ("src/kv/a.h", HEAD + "class BlockManager final {};\n", "not a name here"),
        ("src/kv/a.h", HEAD + "class KvManager final {};\n", None),
        ("src/kv/a.h", HEAD + "struct Context {};\n", "a name that says nothing"),
        ("src/kv/a.h", HEAD + "class A { void DropForTest(); };\n", "no methods for tests"),
        ("src/kv/utils.cc", "\n", "named after what flows"),
        (
            "tests/kv/a_test.cc",
            "void F() { std::this_thread::sleep_for(x); }\n",
            "tests do not sleep",
        ),
        ("docs/a.md", "See /wor" "k/main.\n", "a path of one machine"),
        ("docs/a.md", "A  \n", "space at the end"),
        ("docs/a.md", "A", "no newline at the end"),
        ("src/kv/a.cc", "// " + "a" * 98 + "\n", "longer than 100"),
        ("src/kv/a.cc", "// " + "a" * 97 + "\n", None),
        ("src/kv/a.cc", "\n" * 501, "501 lines"),
        ("src/kv/a.cc", "// Over 500 lines: one table.\n" + "\n" * 500, None),
        ("src/kv/a.cc", "// Over 500 lines: one table.\n" + "\n" * 800, "the limit is 800"),
        ("src/kv/a.cc", "void F() {\n" + "  G();\n" * 69 + "}\n", "a function of 71 lines"),
        ("src/kv/a.cc", "void F() {\n" + "  G();\n" * 68 + "}\n", None),
        (
            "src/kv/a.cc",
            "// Over 70 lines: one table.\nvoid F() {\n" + "  G();\n" * 69 + "}\n",
            None,
        ),
        ("src/kv/a.cc", "class A {\n" + "  int a;\n" * 99 + "};\n", None),
        ("src/kv/a.cc", "namespace {\n" + "void F() { G([] { H(); }); }\n" * 99 + "}\n", None),
        (
            "src/kv/a.cc",
            "int a = 1'000'000;\nauto b = std::hash<int>();\nint c = 2'000;\n",
            "std::hash",
        ),
    ],
)
def test_a_wrong_text_is_named(tmp_path, name, text, problem):
    write(tmp_path, {name: text})
    problems = list(check_files.check(tmp_path))
    if problem is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problem in problems[0]


def test_two_types_of_one_name_are_found(tmp_path):
    write(
        tmp_path,
        {
            "src/kv/a.h": HEAD + "namespace p {\nclass A final {\n  struct B {};\n};\n}\n",
            "src/kv/b.h": HEAD + "namespace p {\nstruct B {};\nclass A;\n}\n",
            "src/text/c.cc": "namespace p {\nnamespace {\nclass A final {};\n}\n"
            "class A::C {};\nenum class A : int { kOne };\n}\n",
        },
    )
    assert list(check_files.check(tmp_path)) == [
        "src/text/c.cc:6: 'p::A' is defined at src/kv/a.h:4 too"
    ]


def test_the_programs_say_what_is_wrong_and_fail(tmp_path):
    write(tmp_path, {"src/kv/a.cc": "void F() { throw 1; }\n#include <thread>\n"})
    for name, line in [("check_files.py", "src/kv/a.cc:1:"), ("check_layers.py", "src/kv/a.cc:2:")]:
        run = subprocess.run(
            ["python3", ROOT / "tests/tidy" / name, tmp_path],
            check=False,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 1
        assert line in run.stdout


def test_stripped_code_keeps_its_lines():
    code = 'a /* b\n c */ d "e // f" // g\nR"(h\n"i")" j'
    assert source_tree.strip(code) == 'a     \n      d "      "     \nR   \n    " j'
