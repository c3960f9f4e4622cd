"""One row of OpenVINO GenAI, by the definitions of llama-bench; writes JSON.

  openvino_bench.py MODEL.gguf THREADS TOKENS DEPTH STREAMS JSON

STREAMS 0 is a prompt of TOKENS; 1 is one stream that generates TOKENS behind DEPTH; more are so
many at once, each behind a prompt of DEPTH. Runs in the environment
of bench/peers/install.sh openvino.
"""

import json
import random
import sys
import time
from pathlib import Path

import numpy
import openvino
import openvino_genai as genai

WARM_UP_TOKENS = 8


def prompt_of(tokens, seed):
    """Token ids that no cache knows, past those that mean something."""
    ids = numpy.array(
        [random.Random(seed).choices(range(1000, 40000), k=tokens)], dtype=numpy.int64
    )
    return openvino.Tensor(ids)


def settings(tokens):
    return genai.GenerationConfig(
        max_new_tokens=tokens, min_new_tokens=tokens, ignore_eos=True, do_sample=False
    )


def run(pipeline, prompts, tokens):
    """(seconds until all prompts have a first token, tokens a second of all after that)."""
    handles = [
        pipeline.add_request(index, prompt, settings(tokens))
        for index, prompt in enumerate(prompts)
    ]
    begin = time.perf_counter()
    counts = [0] * len(handles)
    all_began, count_then = None, 0
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for index, handle in enumerate(handles):
            if handle.can_read():
                counts[index] += sum(len(each.generated_ids) for each in handle.read().values())
        if all_began is None and all(counts):
            all_began, count_then = time.perf_counter(), sum(counts)
    decoding = time.perf_counter() - all_began
    return all_began - begin, (sum(counts) - count_then) / decoding if tokens > 1 else None


def main():
    model, threads, tokens, depth, streams = sys.argv[1], *map(int, sys.argv[2:6])
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_seqs = 32
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(
        model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
    )
    run(pipeline, [prompt_of(64, 0)], WARM_UP_TOKENS)
    if streams == 0:
        seconds, _ = run(pipeline, [prompt_of(tokens, 1)], 1)
        rate = tokens / seconds
    else:
        prompts = [prompt_of(max(depth, 1), seed) for seed in range(1, streams + 1)]
        _, rate = run(pipeline, prompts, tokens)
    Path(sys.argv[6]).write_text(json.dumps({"tok_s": rate}))


if __name__ == "__main__":
    main()
