// For tests of stores: requests that wait, and values.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/cluster/block_store.h"

namespace cairn::testing {

// Submits, and waits for all outcomes.
inline std::vector<StoreOutcome> answers(BlockStore& store, StoreOperation operation, std::vector<StoreItem> items,
                                         Duration within = std::chrono::seconds(10)) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable all;
    std::vector<StoreOutcome> outcomes;
    std::size_t left = 0;
  };
  const auto waiting = std::make_shared<Waiting>();
  waiting->outcomes.resize(items.size());
  waiting->left = items.size();
  StoreRequest request{.operation = operation,
                       .items = std::move(items),
                       .deadline = steady_clock().now() + within,
                       .done = [waiting](std::size_t item, StoreOutcome&& outcome) {
                         const std::lock_guard lock(waiting->mutex);
                         waiting->outcomes[item] = std::move(outcome);
                         if (--waiting->left == 0) {
                           waiting->all.notify_all();
                         }
                       }};
  const Status submitted = store.submit(std::move(request));
  EXPECT_TRUE(submitted.has_value()) << (submitted ? "" : submitted.error().message);
  std::unique_lock lock(waiting->mutex);
  if (submitted) {
    waiting->all.wait(lock, [&] { return waiting->left == 0; });
  }
  return std::move(waiting->outcomes);
}

inline StoreOutcome answer(BlockStore& store, StoreOperation operation, StoreItem item,
                           Duration within = std::chrono::seconds(10)) {
  std::vector<StoreItem> items;
  items.push_back(std::move(item));
  return answers(store, operation, std::move(items), within).front();
}

inline StoreLabelBytes label_of(unsigned char byte) {
  StoreLabelBytes label;
  label.fill(std::byte{byte});
  return label;
}

inline std::vector<std::byte> body_of(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> body(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    seed = seed * 1664525U + 1013904223U;
    body[i] = static_cast<std::byte>(seed >> 24U);
  }
  return body;
}

}  // namespace cairn::testing
