# SPDX-License-Identifier: Apache-2.0
#
# Makes the golden checkpoints in tests/data/qwen3: small Qwen3 models with random weights, and what
# Hugging Face transformers makes of them. Run where PyTorch and transformers are, with an empty
# folder to write to; the results are kept in the repository: the tests do not need this.
#
#   python3 tests/data/make_checkpoints.py tests/data/qwen3
#
# Each folder has config.json, generation_config.json, *.safetensors (sharded where larger than
# 230 kB) and golden.safetensors, which holds for prompt N
#
#   prompt.N, greedy.N  tokens; 48 are generated, 16 for bf16
#   margin.N            of each chosen token over the next
#   logits.N            [tokens, vocabulary] f32 as the model's own type gives them
#   exact.N             the same with everything in f64
#
# Weights are scaled so that logits spread over several units, and of many random prompts the one is
# taken whose greedy tokens have the widest margins: rounding must not decide which token is next.

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

CANDIDATES = 150
PROMPT_LENGTHS = [1, 7, 19, 33]

CHECKPOINTS = {
    "f32-gqa5": dict(dtype=torch.float32, heads=5, kv_heads=1, tied=False, seed=1),
    "f32-gqa4-tied": dict(dtype=torch.float32, heads=4, kv_heads=1, tied=True, seed=2),
    "bf16-gqa5-tied": dict(dtype=torch.bfloat16, heads=5, kv_heads=1, tied=True, seed=3),
    "bf16-gqa4": dict(dtype=torch.bfloat16, heads=8, kv_heads=2, tied=False, seed=4),
}


def make_config(heads, kv_heads, tied):
    return transformers.Qwen3Config(
        vocab_size=160,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=64,
        max_position_embeddings=256,
        rope_theta=1000000.0,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
        attention_bias=False,
        bos_token_id=0,
        eos_token_id=159,
    )


def fill(model, generator):
    for name, tensor in model.named_parameters():
        if name.endswith("norm.weight"):
            values = 1.0 + 0.3 * torch.randn(tensor.shape, generator=generator)
        elif "embed_tokens" in name or "lm_head" in name:
            values = 0.5 * torch.randn(tensor.shape, generator=generator)
        elif "o_proj" in name or "down_proj" in name:
            # Strong enough that a tied model does not only repeat the token it has read.
            values = 3.0 * torch.randn(tensor.shape, generator=generator) / tensor.shape[1] ** 0.5
        else:
            values = torch.randn(tensor.shape, generator=generator) / tensor.shape[1] ** 0.5
        tensor.data.copy_(values)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens).logits.to(torch.float64)


# Greedy tokens and their margins for all candidates at once.
def greedy(model, prompts, count):
    tokens = prompts
    margins = []
    for _ in range(count):
        top = torch.topk(logits_of(model, tokens)[:, -1], 2)
        margins.append(top.values[:, 0] - top.values[:, 1])
        tokens = torch.cat([tokens, top.indices[:, :1]], dim=1)
    return tokens[:, prompts.shape[1] :], torch.stack(margins, dim=1)


def choose_prompt(model, length, count, generator):
    prompts = torch.randint(1, 159, (CANDIDATES, length), generator=generator)
    tokens, margins = greedy(model, prompts, count)
    varied = torch.tensor([len(set(row.tolist())) >= count // 3 for row in tokens])
    best = torch.where(varied, margins.min(dim=1).values, -1.0).argmax()
    return prompts[best : best + 1], tokens[best], margins[best]


def make(folder, dtype, heads, kv_heads, tied, seed):
    generator = torch.Generator().manual_seed(seed)
    config = make_config(heads, kv_heads, tied)
    model = transformers.Qwen3ForCausalLM._from_config(config, attn_implementation="eager")
    fill(model, generator)
    if tied:
        model.tie_weights()
    model = model.to(dtype).eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True, max_shard_size="230KB")
    exact = transformers.Qwen3ForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float64, attn_implementation="eager"
    ).eval()
    golden = {}
    count = 48 if dtype == torch.float32 else 16
    for index, length in enumerate(PROMPT_LENGTHS):
        prompt, tokens, margins = choose_prompt(model, length, count, generator)
        golden[f"prompt.{index}"] = prompt[0].to(torch.int32)
        golden[f"greedy.{index}"] = tokens.to(torch.int32)
        golden[f"margin.{index}"] = margins.to(torch.float32)
        golden[f"logits.{index}"] = logits_of(model, prompt)[0].to(torch.float32)
        golden[f"exact.{index}"] = logits_of(exact, prompt)[0].to(torch.float32)
        error = (golden[f"logits.{index}"] - golden[f"exact.{index}"]).abs().max().item()
        print(folder.name, index, "smallest margin", margins.min().item(), "error", error,
              "spread", golden[f"exact.{index}"].std().item(), "tokens", tokens.tolist()[:16])
    safetensors.torch.save_file(golden, folder / "golden.safetensors")
    print(folder.name, sum(p.numel() for p in model.parameters()), "parameters")


def main():
    root = pathlib.Path(sys.argv[1])
    for name, options in CHECKPOINTS.items():
        make(root / name, **options)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (root / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


main()
