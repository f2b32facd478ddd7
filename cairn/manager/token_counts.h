// TokenCounts: what became of the tokens that an engine's requests asked for and saved, in tokens. TokenReport: the counts of
// a connector, for operators (docs/connector.md explains them with examples).
//
// The prompt of a request is counted once: when it first runs, or when its load has ended, if it is loaded. The engine may ask
// again before that, after Match::kAskAgain for example; the last answer counts. A request that never asked, or that ends
// before it runs, is not counted. So these hold at any time, for a request, a tenant, a window and in total:
//
//   asked        = device + loaded() + computed
//   found()      = loaded() + too_slow + failed + skipped       and device + found() <= asked
//   lost         = kept + reloaded + recomputed
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

struct TokenCounts {
  // --- the prompt, when the request first runs ---
  std::uint64_t requests = 0;     // that are counted here; not tokens
  std::uint64_t asked = 0;        // tokens of the prompt
  std::uint64_t device = 0;       // in the engine's own prefix cache
  std::uint64_t found_host = 0;   // beyond those, in whole blocks that the tiers had, by the nearest tier
  std::uint64_t found_disk = 0;   //
  std::uint64_t loaded_host = 0;  // of the found ones, loaded, by the tier that they came from
  std::uint64_t loaded_disk = 0;  //
  std::uint64_t too_slow = 0;     // found, and faster to compute than to load (the cost model)
  std::uint64_t failed = 0;       // found and to be loaded, but the load did not bring them
  // Found, and not loaded for another reason: limits of the connector, or the engine's choice.
  std::uint64_t skipped = 0;
  std::uint64_t computed = 0;  // left to the engine to compute

  // --- later ---
  std::uint64_t lost = 0;         // no longer on the device, after a preemption or a load that failed
  std::uint64_t kept = 0;         // of those, in the engine's own prefix cache when the request ran again
  std::uint64_t reloaded = 0;     // of those, loaded
  std::uint64_t recomputed = 0;   // of those, left to the engine to compute again
  std::uint64_t loaded_late = 0;  // not lost, and loaded after the request had run: they were left to the engine before

  // --- saves that have ended, in whole blocks ---
  std::uint64_t saved = 0;                // in a tier when the save ended
  std::uint64_t dropped_filtered = 0;     // admission did not want them
  std::uint64_t dropped_shed = 0;         // the queue was full of more valuable blocks, or the tier had no room
  std::uint64_t dropped_unavailable = 0;  // offloading was paused, or a tier out of use
  std::uint64_t dropped_failed = 0;       // the transfer failed, was cancelled or expired, or a reset came

  [[nodiscard]] std::uint64_t found() const { return found_host + found_disk; }
  [[nodiscard]] std::uint64_t loaded() const { return loaded_host + loaded_disk; }
  [[nodiscard]] std::uint64_t dropped() const {
    return dropped_filtered + dropped_shed + dropped_unavailable + dropped_failed;
  }
  // The share of the prompts that nobody had to compute; 0 if nothing was asked.
  [[nodiscard]] double hit_rate() const {
    return asked == 0 ? 0 : static_cast<double>(device + loaded()) / static_cast<double>(asked);
  }
  // Whether the equations above hold.
  [[nodiscard]] bool adds_up() const {
    return asked == device + loaded() + computed && found() == loaded() + too_slow + failed + skipped &&
           device + found() <= asked && lost == kept + reloaded + recomputed;
  }

  TokenCounts& operator+=(const TokenCounts& other);
  TokenCounts& operator-=(const TokenCounts& other);
  friend bool operator==(const TokenCounts&, const TokenCounts&) = default;
};

// All counts by their names: "asked", "found_host" and so on.
inline constexpr std::pair<std::string_view, std::uint64_t TokenCounts::*> kTokenCounts[] = {
    {"requests", &TokenCounts::requests},
    {"asked", &TokenCounts::asked},
    {"device", &TokenCounts::device},
    {"found_host", &TokenCounts::found_host},
    {"found_disk", &TokenCounts::found_disk},
    {"loaded_host", &TokenCounts::loaded_host},
    {"loaded_disk", &TokenCounts::loaded_disk},
    {"too_slow", &TokenCounts::too_slow},
    {"failed", &TokenCounts::failed},
    {"skipped", &TokenCounts::skipped},
    {"computed", &TokenCounts::computed},
    {"lost", &TokenCounts::lost},
    {"kept", &TokenCounts::kept},
    {"reloaded", &TokenCounts::reloaded},
    {"recomputed", &TokenCounts::recomputed},
    {"loaded_late", &TokenCounts::loaded_late},
    {"saved", &TokenCounts::saved},
    {"dropped_filtered", &TokenCounts::dropped_filtered},
    {"dropped_shed", &TokenCounts::dropped_shed},
    {"dropped_unavailable", &TokenCounts::dropped_unavailable},
    {"dropped_failed", &TokenCounts::dropped_failed},
};
static_assert(sizeof(TokenCounts) == std::size(kTokenCounts) * sizeof(std::uint64_t), "a count has no name");

inline TokenCounts& TokenCounts::operator+=(const TokenCounts& other) {
  for (const auto& [name, count] : kTokenCounts) {
    this->*count += other.*count;
  }
  return *this;
}
inline TokenCounts& TokenCounts::operator-=(const TokenCounts& other) {
  for (const auto& [name, count] : kTokenCounts) {
    this->*count -= other.*count;
  }
  return *this;
}

struct TokenReport {
  TokenCounts total = {};
  TokenCounts last_requests = {};  // of the last requests.window_requests requests that were counted
  TokenCounts last_time = {};      // of the last requests.window_time, to within a sixtieth of it
  struct Tenant {
    std::string name = {};  // one of requests.tenants; "" for requests that name none
    TokenCounts total = {};
  };
  std::vector<Tenant> tenants = {};  // together they are `total`
};

}  // namespace cairn
