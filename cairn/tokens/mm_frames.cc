#include "cairn/tokens/mm_frames.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "cairn/hash/xxh3.h"

namespace cairn::internal {
namespace {

constexpr std::size_t kFrameBytes = 13;
constexpr std::size_t kFramesPerPiece = 64;

class Stream {
 public:
  explicit Stream(SaltHash salt) {
    XXH3_INITSTATE(&state_);
    XXH3_64bits_reset_withSeed(&state_, value_of(salt));
  }
  // Not inlined: given a buffer of known size, g++ 12 warns of branches that such a size never takes.
  [[gnu::noinline]] void add(std::span<const std::byte> bytes) {
    XXH3_64bits_update(&state_, bytes.data(), bytes.size());
  }
  [[nodiscard]] std::uint64_t finish() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

template <typename Hash>
void add_frames(std::span<const Token> tokens, std::uint64_t offset, std::span<const MmRun> runs, Hash& hash) {
  std::array<std::byte, kFrameBytes * kFramesPerPiece> piece;
  std::size_t filled = 0;
  auto run = runs.begin();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint64_t place = offset + i;
    while (run != runs.end() && run->end() <= place) {
      ++run;
    }
    const bool covered = run != runs.end() && run->offset <= place;
    const std::uint32_t id = covered ? run->item_offset + static_cast<std::uint32_t>(place - run->offset) : tokens[i];
    const std::uint64_t item = covered ? run->mm_hash : 0;
    std::byte* const frame = piece.data() + filled;
    frame[0] = std::byte{covered};
    std::memcpy(frame + 1, &id, sizeof(id));
    std::memcpy(frame + 5, &item, sizeof(item));
    filled += kFrameBytes;
    if (filled == piece.size()) {
      hash.add(piece);
      filled = 0;
    }
  }
  hash.add(std::span(piece).first(filled));
}

}  // namespace

std::uint64_t hash_frames(std::span<const Token> tokens, std::uint64_t offset, std::span<const MmRun> runs,
                          SaltHash salt) {
  Stream stream(salt);
  add_frames(tokens, offset, runs, stream);
  return stream.finish();
}

AesBlock mac_frames(std::span<const Token> tokens, std::uint64_t offset, std::span<const MmRun> runs,
                    const CmacKey& key) {
  CmacStream stream(key);
  add_frames(tokens, offset, runs, stream);
  return stream.finish();
}

std::uint64_t hash_with_words(std::span<const Token> tokens, std::span<const std::uint64_t> words, SaltHash salt) {
  Stream stream(salt);
  stream.add(std::as_bytes(tokens));
  stream.add(std::as_bytes(words));
  return stream.finish();
}

}  // namespace cairn::internal
