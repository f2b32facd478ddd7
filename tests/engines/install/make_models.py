#!/usr/bin/env python3
"""make_models.py FOLDER: two random models of under a megabyte, `tiny` and `tinyhyb`, which has sliding and full attention."""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SHAPE = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,  # large, so that tokens depend on all that came before
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tokenizer() -> PreTrainedTokenizerFast:
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"t{i}": i for i in range(3, 1024)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    tiny = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, tie_word_embeddings=False, **SHAPE))
    kinds = ["sliding_attention", "full_attention"] * 2
    hybrid = Gemma3ForCausalLM(
        Gemma3TextConfig(num_hidden_layers=4, sliding_window=64, query_pre_attn_scalar=64, layer_types=kinds, **SHAPE)
    )
    with torch.no_grad():  # tied embeddings that are large make the model repeat a token, whatever is in its cache
        hybrid.model.embed_tokens.weight.mul_(0.01)
    for name, model in (("tiny", tiny), ("tinyhyb", hybrid)):
        model.to(torch.bfloat16).save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)


if __name__ == "__main__":
    main()
