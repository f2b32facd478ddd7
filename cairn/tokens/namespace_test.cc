#include "cairn/tokens/key_hasher.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace cairn {
namespace {

Namespace full() {
  return {.tenant = "acme",
          .model = "llama-3-8b",
          .weights_generation = 3,
          .layout = "layer-first",
          .element_type = "bf16",
          .shard = "tp0/2",
          .block_size = 16,
          .scheme = KeyScheme::kVllm};
}

TEST(NamespaceTest, TheIdIsStable) {
  EXPECT_EQ(full().id(), full().id());
  // Recorded: stored keys depend on these.
  EXPECT_EQ(value_of(Namespace{}.id()), 0xaf40c5790986c379U);
  EXPECT_EQ(value_of(full().id()), 0xa391d337f67ae71fU);
}

TEST(NamespaceTest, EveryFieldSeparates) {
  std::vector<Namespace> all(9, full());
  all[1].tenant = "acm";
  all[2].model = "llama-3-70b";
  all[3].weights_generation = 4;
  all[4].layout = "";
  all[5].element_type = "fp8_e4m3";
  all[6].shard = "tp1/2";
  all[7].block_size = 32;
  all[8].scheme = KeyScheme::kNative;
  std::set<NamespaceId> ids;
  for (const Namespace& each : all) {
    ids.insert(each.id());
  }
  EXPECT_EQ(ids.size(), all.size());
}

TEST(NamespaceTest, TextCannotWanderBetweenFields) {
  const std::vector<Namespace> all = {
      {.tenant = "ab", .model = ""},
      {.tenant = "a", .model = "b"},
      {.tenant = "", .model = "ab"},
      {.layout = "ab"},
      {.element_type = "ab"},
      {.shard = "ab"},
      {},
      {.tenant = std::string(1, '\0')},
      {.model = std::string(1, '\0')},
      {.tenant = std::string(8, '\0')},
      {.weights_generation = 1},
      {.block_size = 1},
      {.scheme = KeyScheme::kVllm},
  };
  std::set<NamespaceId> ids;
  for (const Namespace& each : all) {
    ids.insert(each.id());
  }
  EXPECT_EQ(ids.size(), all.size());
}

RC_GTEST_PROP(QualifiedKeyProperty, BytesComeBack, (std::uint64_t ns, std::uint64_t current, std::uint64_t parent)) {
  const auto position = *rc::gen::inRange<std::uint32_t>(0, BlockKey::kMaxPosition + 1);
  const QualifiedKey key{NamespaceId{ns},
                         BlockKey::make_checked(position, SequenceHash{current}, SequenceHash{parent})};
  const auto bytes = key.to_bytes();
  RC_ASSERT(*QualifiedKey::from_bytes(bytes) == key);
  RC_ASSERT(std::to_integer<std::uint64_t>(bytes[0]) == ns >> 56);
}

TEST(QualifiedKeyTest, RejectsWhatIsNoKey) {
  std::array<std::byte, 25> bytes{};
  EXPECT_EQ(QualifiedKey::from_bytes(bytes).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(QualifiedKey::from_bytes(std::span(bytes).first<16>()).error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(QualifiedKey::from_bytes(std::span(bytes).first<24>()));
  bytes[8] = std::byte{0xc0};
  EXPECT_EQ(QualifiedKey::from_bytes(std::span(bytes).first<24>()).error().code, ErrorCode::kCorrupt) << "mode 3";
}

}  // namespace
}  // namespace cairn
