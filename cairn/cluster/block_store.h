// BlockStore: a store of values by key that somebody else operates: Redis, S3, or memory in tests.
//
// A value has a label of 64 bytes and a body. A request is a batch of items of one kind; each item gets its outcome by one call
// of `done`. An item is done only if the store has answered for it; the order of the outcomes is not defined. Nothing touches the
// body of an item once its outcome is there: a store that is late ends an item at its deadline, and what arrives later goes
// nowhere.
//
// Thread safety: submit() from any thread; it only queues. `done` is called on a thread of the store, or in submit() if the store
// knows the outcome at once; for several items of a request maybe at the same time. It may submit, and must not wait for the store.
// Ownership: bodies belong to the caller, who keeps them until the outcomes. close() and the destructor end what is in flight.
// Errors: submit() refuses a whole request and then never calls `done`: kExhausted if too many items are pending, kUnavailable
// after close(). What goes wrong later is the outcome of items.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn {

inline constexpr std::size_t kStoreLabelBytes = 64;
using StoreLabelBytes = std::array<std::byte, kStoreLabelBytes>;

enum class StoreOperation : std::uint8_t {
  kContains,  // is there a value? Its label, but not its body
  kGet,       // label and body; the body has to have the size of the item's
  kPut,       // keeps a value that is there already: values of one key are alike
  kReplace,   // puts the value in the place of the one that is there
  kErase,     // done whether or not there was a value
};
// "contains", "get", "put", "replace", "erase"
[[nodiscard]] std::string_view to_string(StoreOperation operation);

struct StoreItem {
  std::string key = {};            // any bytes
  StoreLabelBytes label = {};      // kPut, kReplace
  std::span<std::byte> body = {};  // kGet, kPut, kReplace; only kGet writes to it
};

enum class StoreState : std::uint8_t {
  kDone,
  kAbsent,       // kContains, kGet: there is no such value
  kCorrupt,      // there is one, and it cannot be the one that was put: too short or too long
  kUnavailable,  // the store could not be reached, broke off or cannot answer now: the same request may succeed later
  kRefused,      // the store answered that it will not: wrong credentials, no room
  kExpired,      // the deadline passed first
};
// "done", "absent", ...
[[nodiscard]] std::string_view to_string(StoreState state);

struct StoreOutcome {
  StoreState state = StoreState::kDone;
  StoreLabelBytes label = {};  // kContains, kGet
  std::string error = {};      // unless it is done or absent: a sentence with the address of the store, without secrets
};

struct StoreRequest {
  StoreOperation operation = StoreOperation::kContains;
  std::vector<StoreItem> items = {};
  TimePoint deadline = TimePoint::max();
  std::function<void(std::size_t item, StoreOutcome&& outcome)> done = {};
};

class BlockStore {
 public:
  BlockStore() = default;
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;
  virtual ~BlockStore() = default;

  [[nodiscard]] virtual Status submit(StoreRequest&& request) = 0;
  // Ends all items as kUnavailable; returns when all outcomes are given. Not to be called by `done`.
  virtual void close() = 0;
  // What it is and where, for people, without secrets: "redis://10.0.0.7:6379".
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace cairn
