// Messages of every kind for tests, made from a seed.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/wire/rank_message.h"

namespace cairn {

inline constexpr std::size_t kRankMessageKinds = std::variant_size_v<RankMessage>;

class RankMessageMaker {
 public:
  explicit RankMessageMaker(std::uint64_t seed) : random_(seed) {}

  RankMessage make(std::size_t kind) { return make(kind, std::make_index_sequence<kRankMessageKinds>()); }
  RankMessage any() { return make(random_() % kRankMessageKinds); }
  std::uint64_t number() { return random_(); }

 private:
  template <std::size_t... kPlaces>
  RankMessage make(std::size_t kind, std::index_sequence<kPlaces...> /*all*/) {
    RankMessage message;
    ((kind == kPlaces ? fill(message.emplace<kPlaces>()) : void()), ...);
    return message;
  }

  void fill(RankChallenge& message) { fill(message.nonce); }
  void fill(RankHello& message) {
    message.claim = {.rank = small(),
                     .ranks = {small(), small()},
                     .layers = small(),
                     .groups = small(),
                     .block_bytes = random_(),
                     .padded_bytes = random_()};
    if (small() % 2 == 0) message.claim.first_layer = small();
    fill(message.nonce);
    fill(message.proof.bytes);
  }
  void fill(RankWelcome& message) {
    message = {.leader = {random_(), random_()},
               .generation = small(),
               .heartbeat = duration(),
               .config = text(),
               .store = static_cast<RankStore>(random_() % 3),
               .proof = {}};
    fill(message.proof.bytes);
  }
  void fill(RankReady& message) {
    message.block_bytes = random_();
    message.is_reserved = random_() % 2 == 0;
  }
  void fill(RankRefusal& message) { message.reason = text(); }
  void fill(RankTransfer& message) {
    message = {.id = TransferId{random_()},
               .from = static_cast<CacheLevel>(random_() % kCacheLevels),
               .to = static_cast<CacheLevel>(random_() % kCacheLevels),
               .not_before = StepMark::from_value(random_()),
               .time_left = duration(),
               .pairs = {},
               .tags = {}};
    for (std::size_t i = random_() % 9; i > 0; --i) {
      message.pairs.push_back({small(), small()});
      message.tags.push_back({random_(), random_()});
    }
  }
  void fill(RankCancel& message) { message.id = TransferId{random_()}; }
  void fill(RankTransferOutcome& message) {
    message.id = TransferId{random_()};
    for (std::size_t i = random_() % 9; i > 0; --i) {
      message.states.push_back(static_cast<BlockState>(random_() % 5));
      message.sums.push_back({random_(), random_()});
    }
    message.error = text();
    message.copied = duration();
  }
  void fill(RankSettled& message) { message.id = TransferId{random_()}; }
  void fill(RankBroadcast& message) {
    message.bytes.resize(random_() % 40);
    for (std::byte& byte : message.bytes) byte = static_cast<std::byte>(random_());
  }
  void fill(RankPing& message) { message.number = random_(); }
  void fill(RankPong& message) { message.number = random_(); }

  template <std::size_t kBytes>
  void fill(std::array<std::byte, kBytes>& bytes) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
  }
  std::uint32_t small() { return static_cast<std::uint32_t>(random_()); }
  Duration duration() { return Duration(static_cast<Duration::rep>(random_() >> 1)); }
  std::string text() {
    std::string text(random_() % 20, '\0');
    for (char& c : text) c = static_cast<char>(random_());
    return text;
  }

  std::mt19937_64 random_;
};

}  // namespace cairn
