// AES-128-CMAC (RFC 4493, NIST SP 800-38B): a pseudorandom function of messages of any length. Without the key nobody
// can compute a tag, or find two messages with the same tag. Internal.
//
// CmacKey holds an expanded key. It is slow to make and fast to use: make it once and share it.
//
// Thread safety: a CmacKey is immutable.
// Errors: aborts if OpenSSL has no AES-128, which is a broken installation.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace cairn::internal {

struct alignas(16) AesBlock {
  std::array<std::byte, 16> bytes{};

  friend bool operator==(const AesBlock&, const AesBlock&) = default;
};

struct CmacKernel;

class CmacKey {
 public:
  static constexpr std::size_t kBytes = 16;

  // Uses the fastest kernel of this processor.
  explicit CmacKey(std::span<const std::byte, kBytes> key);
  CmacKey(std::span<const std::byte, kBytes> key, const CmacKernel& kernel);
  CmacKey(const CmacKey&) = delete;
  CmacKey& operator=(const CmacKey&) = delete;
  // Overwrites the key in memory.
  ~CmacKey();

  [[nodiscard]] AesBlock mac(std::span<const std::byte> message) const;
  // The tags of out.size() consecutive messages of `size` bytes each.
  void macs(const std::byte* messages, std::size_t size, std::span<AesBlock> out) const;

  // AES of each block by itself.
  void encrypt(std::span<AesBlock> blocks) const;

  // For kernels.
  [[nodiscard]] const CmacKernel& kernel() const { return *kernel_; }
  [[nodiscard]] const AesBlock& key() const { return rounds_[0]; }
  [[nodiscard]] const std::array<AesBlock, 11>& rounds() const { return rounds_; }
  [[nodiscard]] const AesBlock& whole() const { return whole_; }  // K1 of the RFC: masks a last block of 16 bytes
  [[nodiscard]] const AesBlock& part() const { return part_; }    // K2 of the RFC: masks a shorter one

 private:
  const CmacKernel* kernel_;
  std::array<AesBlock, 11> rounds_;  // kernels without AES instructions use only the first one
  AesBlock whole_;
  AesBlock part_;
};

// The tag of a message that comes in parts.
class CmacStream {
 public:
  explicit CmacStream(const CmacKey& key) : key_(key) {}

  void add(std::span<const std::byte> bytes);
  [[nodiscard]] AesBlock finish();

 private:
  const CmacKey& key_;
  AesBlock state_;
  std::size_t filled_ = 0;  // bytes of the current block that state_ has already
};

// One way to compute AES.
struct CmacKernel {
  std::string_view name;
  bool has_instructions;  // uses AES instructions of the processor (aes_ni.h)
  // Makes the other ten round keys from the first one.
  void (*expand)(std::array<AesBlock, 11>& rounds);
  // Encrypts each of the blocks by itself.
  void (*encrypt)(const CmacKey& key, std::span<AesBlock> blocks);
  void (*macs)(const CmacKey& key, const std::byte* messages, std::size_t size, std::span<AesBlock> out);
};

// The kernels that run on this processor, the fastest first. The last one is OpenSSL's AES.
[[nodiscard]] std::span<const CmacKernel> cmac_kernels();

// AES-128 of each block by itself with OpenSSL, under the first round key of `key`.
void encrypt_with_openssl(const CmacKey& key, std::span<AesBlock> blocks);

#if defined(__x86_64__)
// Runs on processors with AES and SSE4.1.
extern const CmacKernel kAesNiKernel;
[[nodiscard]] bool has_aes_ni();
#endif

}  // namespace cairn::internal
