// A prompt whose KV cache survives the process: cairn_llama MODEL.gguf FILE [TOKENS]
//
// Generates greedily from a prompt of TOKENS (400) random tokens. The state of the prompt's sequence is restored from FILE if
// an earlier run left it there, else computed and saved. Run it twice: the second run restores, and prints the same tokens.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <llama.h>
#include "examples/llama/sequence_store.h"

namespace {

constexpr int kGenerated = 24;

struct Free {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};

void decode(llama_context& context, std::span<llama_token> tokens) {
  if (llama_decode(&context, llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) != 0) {
    throw std::runtime_error("llama_decode failed");
  }
}

llama_token most_likely(llama_context& context, int32_t vocabulary) {
  const float* const logits = llama_get_logits_ith(&context, -1);
  return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
}

void run(const char* model_path, const char* file, size_t length) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) {
          std::fputs(text, stderr);
        }
      },
      nullptr);
  llama_backend_init();
  const std::unique_ptr<llama_model, Free> model(llama_model_load_from_file(model_path, llama_model_default_params()));
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(length) + kGenerated + 8;
  params.n_batch = params.n_ctx;
  const std::unique_ptr<llama_context, Free> context(model == nullptr ? nullptr
                                                                      : llama_init_from_model(model.get(), params));
  if (context == nullptr) {
    throw std::runtime_error("llama.cpp cannot load the model");
  }
  const int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));

  std::mt19937 random(7);  // the same prompt in every run
  std::vector<llama_token> prompt(length);
  for (llama_token& token : prompt) {
    token = static_cast<llama_token>(random() % static_cast<uint32_t>(vocabulary));
  }
  // The last token is decoded in any case: a state has no logits.
  const std::span<llama_token> body = std::span(prompt).first(length - 1);

  // What states depend on: the weights, here by the name of their file, and the types of the KV cache.
  SequenceStore store(file, "64MiB", std::string(model_path) + " f16");
  const auto began = std::chrono::steady_clock::now();
  const std::optional<std::vector<uint8_t>> state = store.restore(body);
  const bool restored =
      state && llama_state_seq_set_data(context.get(), state->data(), state->size(), 0) == state->size();
  if (!restored) {
    llama_memory_seq_rm(llama_get_memory(context.get()), 0, -1, -1);  // what a failed restore may have left
    decode(*context, body);
  }
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
  std::fprintf(stderr, "%s %zu tokens in %.1f ms\n", restored ? "restored" : "computed", body.size(), ms);
  if (!restored) {
    std::vector<uint8_t> bytes(llama_state_seq_get_size(context.get(), 0));
    bytes.resize(llama_state_seq_get_data(context.get(), bytes.data(), bytes.size(), 0));
    store.save(body, bytes);
    std::fprintf(stderr, "saved %zu bytes\n", bytes.size());
  }

  llama_token next = prompt.back();
  for (int i = 0; i < kGenerated; ++i) {
    decode(*context, {&next, 1});
    next = most_likely(*context, vocabulary);
    std::printf("%d%c", next, i + 1 == kGenerated ? '\n' : ' ');
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: cairn_llama MODEL.gguf FILE [TOKENS]\n");
    return 2;
  }
  try {
    const long length = argc > 3 ? std::strtol(argv[3], nullptr, 10) : 400;
    if (length < 2 || length > 100000) {
      throw std::runtime_error("TOKENS is 2 to 100000");
    }
    run(argv[1], argv[2], static_cast<size_t>(length));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cairn_llama: %s\n", error.what());
    return 1;
  }
}
