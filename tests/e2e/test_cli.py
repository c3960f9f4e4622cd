"""The command line, which scripts depend on."""

import json
import os
import re
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest
from daemon import MODEL, POLYSIL, ROOT, SANITIZED

COMMANDS = ["serve", "generate", "chat", "tokenize", "inspect", "sim", "bench", "version"]


def run(*arguments, stdin=b"", timeout=240):
    return subprocess.run(
        [str(POLYSIL), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def check_refused(result, *words):
    """One clear line on standard error besides the log, exit code 1, no crash."""
    assert result.returncode == 1, (result.returncode, result.stderr[-2000:])
    lines = result.stderr.decode().splitlines()
    lines = [line for line in lines if not re.match(r"\d{4}-\d\d-\d\dT\S+ info ", line)]
    assert len(lines) == 1, lines
    assert lines[0].startswith("polysil: ") and len(lines[0]) < 500
    for word in words:
        assert word in lines[0], lines[0]


def test_help_is_everywhere():
    for arguments in [["--help"], *[[command, "--help"] for command in COMMANDS]]:
        result = run(*arguments)
        assert result.returncode == 0
        assert len(result.stdout) > 50 and result.stderr == b""
    for command in COMMANDS:
        assert command.encode() in run("--help").stdout


def test_a_wrong_command_line_is_exit_code_2():
    for arguments in [
        [],
        ["fly"],
        ["serve"],
        ["serve", MODEL, "--fly"],
        ["generate", MODEL],
        ["inspect"],
        ["tokenize"],
        ["sim"],
        ["sim", "--seed", "1", "--trace", "t"],
        ["sim", "--seeds", "1:5", "--json", "t"],
        ["bench"],
        ["bench", "offline"],
        ["bench", "offline", MODEL, "--prompt", "many"],
    ]:
        result = run(*arguments)
        assert result.returncode == 2, arguments
        assert result.stderr or result.stdout


def test_version():
    assert re.fullmatch(rb"polysil \d+\.\d+\.\d+\n", run("version").stdout)


@pytest.mark.sanitized
def test_generate():
    result = run("generate", MODEL, "-p", "The capital of France is", "-n", "8", "-t", "0")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(b"The capital of France is ")
    again = run("generate", MODEL, "-p", "The capital of France is", "-n", "8", "-t", "0")
    assert again.stdout == result.stdout


def test_chat_reads_lines():
    result = run("chat", MODEL, "-t", "0", stdin=b"What is the capital of France?\nAnd of Italy?\n")
    assert result.returncode == 0, result.stderr
    assert b"Paris" in result.stdout and b"Rome" in result.stdout


def test_chat_passes_empty_lines_of_a_file_over():
    questions = b"What is the capital of France?\n\nAnd of Italy?\n"
    result = run("chat", MODEL, "-t", "0", stdin=questions)
    assert result.returncode == 0, result.stderr
    assert b"Paris" in result.stdout and b"Rome" in result.stdout


def test_text_that_is_no_utf8_is_refused():
    bad = b"ab\xffcd"
    check_refused(run("tokenize", MODEL, stdin=bad), "stdin", "byte 2 is 0xff")
    check_refused(run("generate", MODEL, "-p", os.fsdecode(bad)), "prompt", "byte 2")
    check_refused(run("chat", MODEL, stdin=bad + b"\n"), "message", "byte 2")
    check_refused(run("chat", MODEL, "--system", os.fsdecode(bad)), "system message")


def test_input_and_output_that_fail_are_errors(tmp_path):
    def run_with(stdin, stdout):
        command = [str(POLYSIL), "tokenize", str(MODEL)]
        return subprocess.run(
            command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=240, check=False
        )

    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        check_refused(run_with(folder, subprocess.PIPE), "stdin cannot be read")
    finally:
        os.close(folder)
    with open("/dev/full", "wb") as full:
        check_refused(run_with(subprocess.DEVNULL, full), "stdout cannot be written")


def test_tokenize():
    assert run("tokenize", MODEL, stdin=b"Hello world").stdout == b"19556 905\n"
    assert run("tokenize", MODEL, stdin=b"").stdout.strip() == b""
    control = run("tokenize", MODEL, "--control", stdin=b"<|im_start|>").stdout
    assert control == b"1\n"
    assert run("tokenize", MODEL, stdin=b"<|im_start|>").stdout != control


def test_inspect_tells_what_is_in_the_file():
    result = run("inspect", MODEL)
    assert result.returncode == 0
    text = result.stdout.decode()
    for expected in [
        "llama",
        "Smollm2 135M",
        "Q4_1",
        "Q8_0",
        "F32",
        "gpt2",
        "smollm",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "98362432",
        "blk.29.ffn_down.weight",
        "<|im_start|>",
    ]:
        assert expected in text, expected
    assert len(re.findall(r"^  \S+\.weight\s", text, re.M)) == 272


def trace_line(**fields):
    line = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    return json.dumps(line | fields) + "\n"


def test_sim_runs_seeds():
    result = run("sim", "--seeds", "1:200")
    assert result.returncode == 0, result.stderr
    assert re.match(rb"200 seeds, \d+ ticks, ", result.stdout)


def test_sim_stops_at_a_tick_and_shows_it():
    lines = run("sim", "--seed", "1", "--until-tick", "5").stdout.decode().splitlines()
    assert [line.split()[:2] for line in lines[:5]] == [["tick", str(n)] for n in range(1, 6)]
    assert lines[5].startswith("plan ")


def test_sim_replays_a_trace(tmp_path):
    (tmp_path / "trace").write_text(trace_line() + trace_line(timestamp=900, hash_ids=[0, 2]))
    result = run(
        "sim", "--trace", tmp_path / "trace", "--json", tmp_path / "json", "--svg", tmp_path / "svg"
    )
    assert result.returncode == 0, result.stderr
    assert b"between tokens" in result.stdout
    report = json.loads((tmp_path / "json").read_text())
    assert report["requests"]["length"] == 2
    assert report["prefix_cache_hit_tokens"] == 512
    assert sum(bin["inter_token"]["count"] for bin in report["bins"]) == 8
    assert ElementTree.parse(tmp_path / "svg").getroot().tag.endswith("svg")


def test_sim_refuses_what_it_cannot_run(tmp_path):
    trace = tmp_path / "trace"
    check_refused(run("sim", "--trace", trace), str(trace))
    trace.write_text(trace_line() + "{")
    check_refused(run("sim", "--trace", trace), "line 2")
    trace.write_text(trace_line(hash_ids=[1]))
    check_refused(run("sim", "--trace", trace), "line 1", "hash_ids")
    for seeds in ("5", "-1:2", "1:-1", "1:0", f"1:{2**64}", f"{2**64 - 1}:2", "1:2x", "+1:2"):
        check_refused(run("sim", f"--seeds={seeds}"), "FROM:COUNT")
    no_file = tmp_path / "no" / "file"
    check_refused(run("sim", "--seed", "1", "--json", no_file), "cannot be written")


@pytest.fixture(scope="module")
def model_bytes():
    return MODEL.read_bytes()


def section_edges(model):
    """Where the tensors' data begins, from the file itself: after the last tensor's entry."""
    at = model.index(b"output_norm.weight")
    return at, -(-(at + 64) // 32) * 32


def test_files_cut_at_every_place_are_refused(tmp_path, model_bytes):
    """By the command, at every 8 KiB of the head (metadata, vocabulary, tensors) and at samples of
    the data; tests/model cuts at every KiB within one process."""
    _, data = section_edges(model_bytes)
    step = 1 << (17 if SANITIZED else 13)
    cuts = [
        *range(0, data + 4096, step),
        *range(data, len(model_bytes), len(model_bytes) // 20),
        0,
        1,
        3,
        4,
        8,
        23,
        24,
        25,
        len(model_bytes) - 1,
        len(model_bytes) - 4096,
    ]

    def check(index):
        # Each worker shortens one file of its own.
        mine = tmp_path / f"cut-{index}.gguf"
        mine.write_bytes(model_bytes)
        for cut in sorted(cuts[index::2], reverse=True):
            os.truncate(mine, cut)
            check_refused(run("inspect", mine, timeout=20), mine.name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, range(2)))


def gguf(version=3, tensors=0, entries=0, rest=b"", magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, entries) + rest


def text(value, length=None):
    return struct.pack("<Q", len(value) if length is None else length) + value


GARBAGE = {
    "empty": b"",
    "magic alone": b"GGUF",
    "another magic": b"FUGG" + bytes(100),
    "noise": bytes(range(256)) * 64,
    "a text file": b"version https://example.invalid/spec/v1\noid sha256:0\nsize 5\n",
    "version 0": gguf(version=0),
    "version 1": gguf(version=1),
    "version 4": gguf(version=4),
    "big-endian": gguf(version=0x03000000),
    "2^64-1 tensors": gguf(tensors=2**64 - 1),
    "2^60 entries": gguf(entries=2**60),
    "a key of 2^64-1 bytes": gguf(entries=1, rest=text(b"a", 2**64 - 1)),
    "a key longer than the file": gguf(entries=1, rest=text(b"a", 5)),
    "an empty key": gguf(entries=1, rest=text(b"") + struct.pack("<IB", 0, 1)),
    "an array of 2^63 strings": bytes.fromhex(
        "47475546 03000000 0000000000000000 0100000000000000"
        "0100000000000000 61 09000000 08000000 0000000000000080"
    ),
    "a value of type 13": gguf(entries=1, rest=text(b"a") + struct.pack("<I", 13)),
    "an array of type 99": gguf(entries=1, rest=text(b"a") + struct.pack("<IIQ", 9, 99, 2**60)),
    "nested arrays": gguf(
        entries=1, rest=text(b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 10000
    ),
    "a key twice": gguf(entries=2, rest=(text(b"a") + struct.pack("<IB", 0, 1)) * 2),
    "an alignment of 13": gguf(
        entries=1, rest=text(b"general.alignment") + struct.pack("<II", 4, 13)
    ),
    "an alignment of 0": gguf(
        entries=1, rest=text(b"general.alignment") + struct.pack("<II", 4, 0)
    ),
    "a tensor of 5 dimensions": gguf(
        tensors=1,
        rest=text(b"t") + struct.pack("<I5Q", 5, 1, 1, 1, 1, 1) + struct.pack("<IQ", 0, 0),
    ),
    "a product that wraps": gguf(
        tensors=1, rest=text(b"t") + struct.pack("<IQQIQ", 2, 2**63 + 1, 2, 0, 0) + bytes(64)
    ),
    "a tensor of type 255": gguf(
        tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 1, 255, 0) + bytes(64)
    ),
    "a tensor beyond the end": gguf(
        tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 1, 0, 2**40) + bytes(64)
    ),
}


@pytest.mark.sanitized
def test_garbage_is_refused(tmp_path):
    for name, data in GARBAGE.items():
        path = tmp_path / f"{name.replace(' ', '-').replace('^', '')}.gguf"
        path.write_bytes(data)
        check_refused(run("inspect", path, timeout=20), path.name)
    check_refused(run("inspect", tmp_path / "nowhere.gguf"), "nowhere.gguf")
    check_refused(run("inspect", tmp_path))  # a folder without a model
    check_refused(run("serve", tmp_path / "empty.gguf"), "empty.gguf")
    check_refused(run("generate", tmp_path / "noise.gguf", "-p", "a"), "noise.gguf")
    nothing = tmp_path / "nothing.gguf"
    nothing.write_bytes(gguf())  # a file of the format, but no model
    assert b"runnable: no: " in run("inspect", nothing).stdout
    check_refused(run("serve", nothing), "general.architecture")


@pytest.mark.parametrize(
    "config, words",
    [
        ("kv:\n  blocks: many\n", ["config.yaml", "2", "kv.blocks"]),
        ("kv:\n  blocks: 10\nscheduler:\n  queue_maxx: 5\n", ["config.yaml", "4", "queue_maxx"]),
        ("kv: [\n", ["config.yaml"]),
        ("kv:\n  block_tokens: 17\n", ["kv.block_tokens", "17"]),
        ("nothing:\n  such: 1\n", ["config.yaml", "1", "nothing"]),
    ],
)
def test_a_wrong_configuration_names_the_line(tmp_path, config, words):
    path = tmp_path / "config.yaml"
    path.write_text(config)
    check_refused(run("serve", MODEL, "--config", path), *words)


@pytest.mark.parametrize(
    "setting, words",
    [
        ("kv.blocks", ["kv.blocks"]),
        ("kv.bloks=5", ["kv.bloks"]),
        ("kv.blocks=x", ["kv.blocks", "x"]),
        ("kv.blocks=-1", ["kv.blocks", "-1"]),
        ("kv.blocks=99999999999999999999", ["kv.blocks"]),
        ("cpu.activations=q3", ["cpu.activations", "q3"]),
        ("server.http=nonsense", ["nonsense"]),
    ],
)
def test_a_wrong_setting_is_named(setting, words):
    check_refused(run("serve", MODEL, "--set", setting), *words)


KEYS = {
    "model.context_tokens": 256,
    "kv.blocks": 64,
    "kv.block_tokens": 8,
    "kv.prefix_cache": "false",
    "scheduler.step_tokens_max": 64,
    "scheduler.sequences_max": 4,
    "scheduler.queue_max": 9,
    "server.drain_seconds": 2.5,
    "cpu.threads": 1,
}


def test_every_key_of_the_contract_can_be_set(start):
    settings = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
    daemon = start(*settings, "--name", "small")
    assert daemon.name == "small"
    assert daemon.metric("polysil_kv_blocks_total") == 64
    assert daemon.ok("/v1/completions", {"model": "small", "prompt": "a", "max_tokens": 2})


def test_the_example_configuration_is_one(start):
    daemon = start("--config", ROOT / "configs" / "example.yaml")
    assert daemon.ok("/v1/completions", {"prompt": "a", "max_tokens": 2})
