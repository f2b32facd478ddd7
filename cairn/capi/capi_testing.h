// What tests of the C interface share: structs of their size, a small configuration, keys of a prompt.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <cairn/cairn_c.h>

namespace cairn_c_test {

template <typename T>
T sized() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}

// Blocks of 4 tokens. Keys outside sections may be put before it.
inline std::string config_text(std::uint32_t layers, std::uint32_t device_blocks, std::uint32_t host_blocks) {
  return R"(
block_size = 4
[model]
name = "test"
heads = 1
head_size = 4
element_type = "f32"
layers = )" +
         std::to_string(layers) + "\n[device]\nmemory = \"system\"\nblocks = " + std::to_string(device_blocks) +
         "\n[host]\nblocks = " + std::to_string(host_blocks) + "\n[offload.host]\nmode = \"write-through\"\n";
}

// Of a prompt of that many blocks, whose tokens count up from `first_token`.
inline std::vector<cairn_key> keys_of(const cairn_manager* manager, std::uint32_t first_token, std::size_t blocks) {
  std::vector<std::uint32_t> tokens(blocks * 4);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = first_token + static_cast<std::uint32_t>(i);
  }
  auto prompt = sized<cairn_prompt>();
  prompt.tokens = tokens.data();
  prompt.token_count = tokens.size();
  std::vector<cairn_key> made(blocks);
  std::size_t count = 0;
  EXPECT_EQ(cairn_manager_hash_prompt(manager, &prompt, made.data(), made.size(), &count, nullptr), CAIRN_OK);
  EXPECT_EQ(count, blocks);
  return made;
}

}  // namespace cairn_c_test
