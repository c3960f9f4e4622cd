"""Writes the weights of a GGUF file as the folder that vLLM and transformers read.

  make_checkpoint.py bf16|w8a8 MODEL.gguf FOLDER

bf16 is the file's weights as they are. w8a8 rounds those of the linear layers to 8 bits, one scale
a row, and asks for activations in 8 bits, one scale a token: a compressed-tensors checkpoint.
Runs in the environment that bench/peers/install.sh vllm makes.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**EIGHT_BITS, "strategy": "channel", "dynamic": False},
            "input_activations": {**EIGHT_BITS, "strategy": "token", "dynamic": True},
        }
    },
}


def linear_names(model):
    return {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    }


def in_8_bits(weight):
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 127
    return (weight.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def main():
    form, source, folder = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    folder.mkdir(parents=True)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config.update(architectures=[type(model).__name__], dtype="bfloat16")
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if config.get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)
    if form == "w8a8":
        config["quantization_config"] = W8A8
        for name in linear_names(model):
            tensors[name], tensors[f"{name}_scale"] = in_8_bits(tensors[name])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str))
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


if __name__ == "__main__":
    main()
