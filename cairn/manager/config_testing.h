// For tests of the configuration: a valid one, and one in which every key differs from its default.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "cairn/manager/config_keys.h"
#include "cairn/manager/manager_config.h"

namespace cairn {

// A small model in host memory; a block has 2 x 2 x 16 x 2 x 64 x 2 = 16384 bytes.
[[nodiscard]] inline ManagerConfig usable_config() {
  ManagerConfig config;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.head_size = 64;
  config.host.blocks = 8;
  return config;
}

// A value other than the default, for any key: found by trying, so that new keys are covered too.
[[nodiscard]] inline std::string other_value(const ConfigKey& key) {
  const std::string usual = key.print(ManagerConfig());
  for (const std::string_view value : {"7",
                                       "0.25",
                                       "7GiB",
                                       "7ms",
                                       "true",
                                       "false",
                                       "1",
                                       "2",
                                       "f16",
                                       "lru",
                                       "vllm",
                                       "system",
                                       "layers-kv-hnd",
                                       "allow",
                                       "required",
                                       "1GiB",
                                       "fresh",
                                       "io_uring",
                                       "off",
                                       "error",
                                       "json",
                                       "dynamo",
                                       "passthrough",
                                       "batch:100:500",
                                       "global:full, local:sliding:1024",
                                       "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                                       "say \"\\\" = # [x]"}) {
    ManagerConfig config;
    if (key.parse(config, value) && key.print(config) != usual) {
      return std::string(value);
    }
  }
  ADD_FAILURE() << key.name << ": no other value is known to this test";
  return usual;
}

[[nodiscard]] inline ManagerConfig changed_config() {
  ManagerConfig config;
  for (const ConfigKey& key : config_keys()) {
    const Status taken = set_key(config, key, other_value(key));
    EXPECT_TRUE(taken) << taken.error().message;
  }
  return config;
}

// The values of `config`, key by key.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> values_of(const ManagerConfig& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const ConfigKey& key : config_keys()) {
    values.emplace_back(key.name, key.print(config));
  }
  return values;
}

}  // namespace cairn
