#include "cairn/hash/cmac.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace cairn::internal {
namespace {

std::vector<std::byte> bytes_of(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

AesBlock block_of(std::string_view hex) {
  AesBlock block;
  std::memcpy(&block, bytes_of(hex).data(), sizeof(block));
  return block;
}

std::span<const std::byte, 16> key_of(const AesBlock& block) { return block.bytes; }

class CmacTest : public ::testing::TestWithParam<CmacKernel> {
 protected:
  const AesBlock rfc_key_ = block_of("2b7e151628aed2a6abf7158809cf4f3c");
  const CmacKey key_{key_of(rfc_key_), GetParam()};
};

// RFC 4493, section 4: subkeys and examples 1 to 4.
TEST_P(CmacTest, GivesTheTagsOfRfc4493) {
  EXPECT_EQ(key_.whole(), block_of("fbeed618357133667c85e08f7236a8de"));
  EXPECT_EQ(key_.part(), block_of("f7ddac306ae266ccf90bc11ee46d513b"));
  const std::vector<std::byte> message = bytes_of(
      "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
      "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
  EXPECT_EQ(key_.mac({}), block_of("bb1d6929e95937287fa37d129b756746"));
  EXPECT_EQ(key_.mac(std::span(message).first(16)), block_of("070a16b46b4d4144f79bdd9dd04a287c"));
  EXPECT_EQ(key_.mac(std::span(message).first(40)), block_of("dfa66747de9ae63030ca32611497c827"));
  EXPECT_EQ(key_.mac(message), block_of("51f0bebf7e3b9d92fc49741779363cfe"));
}

// NIST SP 800-38A, F.1.1: AES-128 alone.
TEST_P(CmacTest, EncryptsAsNistSays) {
  AesBlock blocks[] = {block_of("6bc1bee22e409f96e93d7e117393172a"), block_of("ae2d8a571e03ac9c9eb76fac45af8e51")};
  key_.encrypt(blocks);
  EXPECT_EQ(blocks[0], block_of("3ad77bb40d7a3660a89ecaf32466ef97"));
  EXPECT_EQ(blocks[1], block_of("f5d3d58503b9699de785895a96fdbaaf"));
}

TEST_P(CmacTest, MessagesSideBySideAndInPiecesGiveTheSameTags) {
  std::mt19937_64 random(7);
  for (std::size_t size = 0; size <= 200; ++size) {
    for (const std::size_t count : {1U, 3U, 4U, 8U, 13U}) {
      std::vector<std::byte> messages(size * count);
      for (std::byte& byte : messages) {
        byte = static_cast<std::byte>(random());
      }
      std::vector<AesBlock> tags(count);
      key_.macs(messages.data(), size, tags);
      for (std::size_t i = 0; i < count; ++i) {
        std::span<const std::byte> message = std::span(messages).subspan(i * size, size);
        ASSERT_EQ(tags[i], key_.mac(message)) << size << " bytes, message " << i;
        CmacStream stream(key_);
        while (!message.empty()) {
          const std::size_t piece = 1 + random() % message.size();
          stream.add(message.first(piece));
          message = message.subspan(piece);
        }
        ASSERT_EQ(stream.finish(), tags[i]) << size << " bytes, message " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CmacTest, ::testing::ValuesIn(cmac_kernels().begin(), cmac_kernels().end()),
                         [](const auto& kernel) { return kernel.param.has_instructions ? "AesNi" : "OpenSsl"; });

TEST(CmacKernelsTest, AllGiveTheSameTags) {
  std::mt19937_64 random(11);
  for (std::size_t size = 0; size <= 200; ++size) {
    AesBlock secret;
    std::vector<std::byte> message(size);
    for (std::byte& byte : secret.bytes) {
      byte = static_cast<std::byte>(random());
    }
    for (std::byte& byte : message) {
      byte = static_cast<std::byte>(random());
    }
    const AesBlock tag = CmacKey(key_of(secret)).mac(message);
    for (const CmacKernel& kernel : cmac_kernels()) {
      ASSERT_EQ(CmacKey(key_of(secret), kernel).mac(message), tag) << kernel.name << ", " << size << " bytes";
    }
  }
}

}  // namespace
}  // namespace cairn::internal
