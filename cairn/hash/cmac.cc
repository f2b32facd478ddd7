#include "cairn/hash/cmac.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/hash/secret_bytes.h"

namespace cairn::internal {
namespace {

// One AES context for each thread, because a context cannot be shared and is slow to make.
class OpenSslAes {
 public:
  static OpenSslAes& of_this_thread() {
    static thread_local OpenSslAes aes;
    return aes;
  }
  OpenSslAes(const OpenSslAes&) = delete;
  OpenSslAes& operator=(const OpenSslAes&) = delete;
  ~OpenSslAes() { erase_secret(key_.bytes); }

  void encrypt(const AesBlock& key, std::span<AesBlock> blocks) {
    if (!has_key_ || key_ != key) {
      CAIRN_CHECK(EVP_EncryptInit_ex(context_.get(), fetched_cipher(), nullptr, bytes_of(key), nullptr) == 1 &&
                      EVP_CIPHER_CTX_set_padding(context_.get(), 0) == 1,
                  "OpenSSL takes an AES key");
      key_ = key;
      has_key_ = true;
    }
    constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // lengths are ints
    while (!blocks.empty()) {
      const std::span<AesBlock> some = blocks.first(std::min(blocks.size(), kAtOnce));
      auto* const data = reinterpret_cast<unsigned char*>(some.data());
      int written = 0;
      CAIRN_CHECK(EVP_EncryptUpdate(context_.get(), data, &written, data, static_cast<int>(some.size_bytes())) == 1 &&
                      written == static_cast<int>(some.size_bytes()),
                  "OpenSSL encrypts whole blocks");
      blocks = blocks.subspan(some.size());
    }
  }

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };

  OpenSslAes() : context_(EVP_CIPHER_CTX_new()) {
    CAIRN_CHECK(fetched_cipher() != nullptr && context_ != nullptr, "OpenSSL has AES-128");
  }
  // Fetched once for all threads and never freed, as in sha256.cc.
  static const EVP_CIPHER* fetched_cipher() {
    static const EVP_CIPHER* const cipher = EVP_CIPHER_fetch(nullptr, "AES-128-ECB", nullptr);
    return cipher;
  }
  static const unsigned char* bytes_of(const AesBlock& block) {
    return reinterpret_cast<const unsigned char*>(block.bytes.data());
  }

  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  AesBlock key_;
  bool has_key_ = false;
};

void add_to(AesBlock& block, const std::byte* bytes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    block.bytes[i] ^= bytes[i];
  }
}

// All messages have the same length, so each step encrypts one block of every message.
void macs_with_openssl(const CmacKey& key, const std::byte* messages, std::size_t size, std::span<AesBlock> out) {
  std::ranges::fill(out, AesBlock{});
  const std::size_t whole_blocks = size == 0 ? 0 : (size - 1) / 16;
  for (std::size_t step = 0; step <= whole_blocks; ++step) {
    const std::size_t begin = 16 * step;
    const std::size_t bytes = step < whole_blocks ? 16 : size - begin;
    for (std::size_t i = 0; i < out.size(); ++i) {
      add_to(out[i], messages + i * size + begin, bytes);
      if (step == whole_blocks) {
        if (bytes < 16) {
          out[i].bytes[bytes] ^= std::byte{0x80};
        }
        add_to(out[i], (bytes == 16 ? key.whole() : key.part()).bytes.data(), 16);
      }
    }
    encrypt_with_openssl(key, out);
  }
}

void expand_nothing(std::array<AesBlock, 11>& /*rounds*/) {}

constexpr CmacKernel kOpenSslKernel = {.name = "openssl",
                                       .has_instructions = false,
                                       .expand = expand_nothing,
                                       .encrypt = encrypt_with_openssl,
                                       .macs = macs_with_openssl};

// The product with x in the field of 2^128 elements.
AesBlock doubled(const AesBlock& block) {
  AesBlock out;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::byte carry = i + 1 < 16 ? block.bytes[i + 1] >> 7 : std::byte{0};
    out.bytes[i] = (block.bytes[i] << 1) | carry;
  }
  if ((block.bytes[0] >> 7) != std::byte{0}) {
    out.bytes[15] ^= std::byte{0x87};
  }
  return out;
}

std::vector<CmacKernel> find_kernels() {
  std::vector<CmacKernel> kernels;
#if defined(__x86_64__)
  if (has_aes_ni()) {
    kernels.push_back(kAesNiKernel);
  }
#endif
  kernels.push_back(kOpenSslKernel);
  return kernels;
}

}  // namespace

std::span<const CmacKernel> cmac_kernels() {
  static const std::vector<CmacKernel> kKernels = find_kernels();
  return kKernels;
}

void encrypt_with_openssl(const CmacKey& key, std::span<AesBlock> blocks) {
  OpenSslAes::of_this_thread().encrypt(key.key(), blocks);
}

CmacKey::CmacKey(std::span<const std::byte, kBytes> key) : CmacKey(key, cmac_kernels().front()) {}

CmacKey::CmacKey(std::span<const std::byte, kBytes> key, const CmacKernel& kernel) : kernel_(&kernel) {
  std::ranges::copy(key, rounds_[0].bytes.begin());
  kernel.expand(rounds_);
  AesBlock zero;
  kernel.encrypt(*this, {&zero, 1});
  whole_ = doubled(zero);
  part_ = doubled(whole_);
}

CmacKey::~CmacKey() {
  erase_secret(std::as_writable_bytes(std::span(rounds_)));
  erase_secret(whole_.bytes);
  erase_secret(part_.bytes);
}

AesBlock CmacKey::mac(std::span<const std::byte> message) const {
  AesBlock tag;
  kernel_->macs(*this, message.data(), message.size(), {&tag, 1});
  return tag;
}

void CmacKey::encrypt(std::span<AesBlock> blocks) const { kernel_->encrypt(*this, blocks); }

// A full block is encrypted only when more bytes come, because the last block has to be masked first.
void CmacStream::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == 16) {
      key_.encrypt({&state_, 1});
      filled_ = 0;
    }
    const std::size_t size = std::min(bytes.size(), 16 - filled_);
    for (std::size_t i = 0; i < size; ++i) {
      state_.bytes[filled_ + i] ^= bytes[i];
    }
    filled_ += size;
    bytes = bytes.subspan(size);
  }
}

AesBlock CmacStream::finish() {
  if (filled_ < 16) {
    state_.bytes[filled_] ^= std::byte{0x80};
  }
  add_to(state_, (filled_ == 16 ? key_.whole() : key_.part()).bytes.data(), 16);
  key_.encrypt({&state_, 1});
  return state_;
}

void CmacKey::macs(const std::byte* messages, std::size_t size, std::span<AesBlock> out) const {
  kernel_->macs(*this, messages, size, out);
}

}  // namespace cairn::internal
