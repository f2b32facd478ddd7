#include "cairn/cli/demo_engines.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <numbers>
#include <random>
#include <span>
#include <utility>

#include "cairn/base/own_thread.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn::cli {

namespace {

constexpr std::uint32_t kSystemPrompts = 6;
constexpr std::uint32_t kChats = 60;       // of one engine
constexpr std::uint32_t kMostTurns = 12;   // then another chat takes the place
constexpr std::size_t kRunning = 4;        // requests that hold their blocks
constexpr double kRequestsPerSecond = 30;  // of one engine, on average
constexpr double kPeriodSeconds = 60;      // in which the load comes and goes

struct Chat {
  std::vector<Token> tokens;
  std::uint32_t turns = 0;
  TenantId tenant = kDefaultTenant;
};

// One engine.
class Engine {
 public:
  Engine(const KvBlockManager& manager, TokenCounter& tokens, std::uint32_t number)
      : manager_(manager), tokens_(tokens), random_(number + 1), chats_(kChats) {
    for (Chat& chat : chats_) {
      begin(chat);
    }
  }

  // The next request, of a chat that was used lately more often than not.
  void serve() {
    const std::size_t chosen = std::min({below(kChats), below(kChats), below(kChats)});
    Chat& chat = chats_[chosen];
    if (chat.turns++ == kMostTurns) {
      begin(chat);
    }
    say(chat, 40, 300);
    const std::uint32_t size = manager_.block_size();
    std::vector<BlockKey> keys(chat.tokens.size() / size);
    if (!hash_blocks(chat.tokens, size, manager_.hasher(), std::nullopt, keys)) {
      return;
    }
    OutcomeWaiter<LoadOutcome> waiter(manager_);
    if (!manager_.load({.keys = keys, .done = waiter.done()})) {
      return;
    }
    Result<LoadOutcome> loaded = waiter.wait();
    if (!loaded) {
      return;
    }
    count(chat, *loaded, keys.size());
    if (!loaded->blocks.empty()) {
      running_.push_back(std::move(loaded->blocks));
    }
    compute(std::span<const BlockKey>(keys), loaded->prefix);
    say(chat, 60, 250);  // the answer, which the next turn finds on the device or does not
    while (running_.size() > kRunning) {
      running_.pop_front();
    }
  }

  [[nodiscard]] double random_share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  void begin(Chat& chat) {
    const std::uint32_t prompt = static_cast<std::uint32_t>(std::min(below(kSystemPrompts), below(kSystemPrompts)));
    chat = {};
    chat.tenant = TenantId{static_cast<std::uint8_t>(below(3))};
    std::mt19937 words(prompt);  // the same for all engines
    for (std::uint32_t i = 0; i < 320 + 160 * prompt; ++i) {
      chat.tokens.push_back(words() % 128'000);
    }
  }

  void say(Chat& chat, std::size_t least, std::size_t most) {
    for (std::size_t i = least + below(most - least); i > 0; --i) {
      chat.tokens.push_back(static_cast<Token>(below(128'000)));
    }
  }

  void count(const Chat& chat, const LoadOutcome& loaded, std::size_t blocks) {
    const std::uint32_t size = manager_.block_size();
    TokenCounts counts{.requests = 1, .asked = chat.tokens.size()};
    counts.device = std::uint64_t{loaded.from[index_of(CacheLevel::kG1)]} * size;
    counts.loaded_host = counts.found_host = std::uint64_t{loaded.from[index_of(CacheLevel::kG2)]} * size;
    counts.loaded_disk = counts.found_disk = std::uint64_t{loaded.from[index_of(CacheLevel::kG3)]} * size;
    counts.computed = counts.asked - counts.device - counts.loaded();
    counts.saved = (blocks - loaded.prefix) * size;
    (void)tokens_.add(chat.tenant, 0, counts, steady_clock().now());
  }

  // Registers what no tier had. If the device is full of blocks in use, the oldest requests end.
  void compute(std::span<const BlockKey> keys, std::uint32_t from) {
    const auto missing = static_cast<std::uint32_t>(keys.size()) - from;
    if (missing == 0) {
      return;
    }
    while (manager_.device()->counts().available() < missing && !running_.empty()) {
      running_.pop_front();
    }
    Result<MutableBlocks> blocks = manager_.device()->allocate(missing);
    if (!blocks) {
      return;
    }
    const std::optional<SequenceHash> parent = from > 0 ? std::optional(keys[from - 1].sequence_hash()) : std::nullopt;
    auto complete = (*std::move(blocks)).complete({.keys = keys.subspan(from), .parent = parent});
    if (!complete) {
      return;
    }
    if (auto registered = (*std::move(complete)).register_blocks(); registered) {
      running_.push_back(*std::move(registered));
    }
  }

  const KvBlockManager& manager_;
  TokenCounter& tokens_;
  std::mt19937_64 random_;
  std::vector<Chat> chats_;
  std::deque<ImmutableBlocks> running_;
};

}  // namespace

DemoEngines::DemoEngines(const KvBlockManager& manager, std::shared_ptr<TokenCounter> tokens, std::uint32_t engines)
    : manager_(manager), tokens_(std::move(tokens)) {
  for (std::uint32_t number = 0; number < engines; ++number) {
    threads_.push_back(start_own_thread("cairn-demo", [this, number] {
      Engine engine(manager_, *tokens_, number);
      const TimePoint began = steady_clock().now();
      while (!stopping_.load(std::memory_order_relaxed)) {
        engine.serve();
        const double seconds = std::chrono::duration<double>(steady_clock().now() - began).count();
        const double load = 1 + 0.7 * std::sin(2 * std::numbers::pi * (seconds + number * 4) / kPeriodSeconds);
        const double pause = -std::log(1 - engine.random_share()) / (kRequestsPerSecond * load);
        std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause, 0.5)));
      }
    }));
  }
}

DemoEngines::~DemoEngines() {
  stopping_.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

}  // namespace cairn::cli
