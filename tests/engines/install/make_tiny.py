"""Random models of under a million parameters with a tokenizer of words: make_tiny.py FOLDER makes FOLDER/tiny, a Llama, and
FOLDER/mla, a DeepSeek with MLA."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SHAPE = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.3,  # large: greedy tokens vary, and depend on the whole prompt
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}


def llama():
    return LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, **SHAPE))


def deepseek():
    # The only positions that SGLang has for MLA on a CPU.
    positions = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 2048}
    positions |= {"beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
    attention = {"kv_lora_rank": 64, "q_lora_rank": None, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 32}
    # All layers are dense; SGLang reads the figures of experts all the same.
    experts = {"first_k_dense_replace": 2, "moe_layer_freq": 1, "n_routed_experts": 2, "n_shared_experts": 1}
    experts |= {"num_experts_per_tok": 1, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1}
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=4096,
            rope_parameters=positions,
            **attention,
            **experts,
            **SHAPE,
        )
    )


def save(model, folder):
    model.to(torch.bfloat16).save_pretrained(folder)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"t{i}": i for i in range(3, 1024)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


if __name__ == "__main__":
    torch.manual_seed(0)
    for name, make in {"tiny": llama, "mla": deepseek}.items():
        save(make(), f"{sys.argv[1]}/{name}")
