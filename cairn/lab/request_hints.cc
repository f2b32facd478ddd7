#include "cairn/lab/request_hints.h"

#include <algorithm>
#include <span>

namespace cairn::lab {

namespace {

constexpr std::uint32_t kManySequences = 16;

// For each block, whether it is part of a system prompt.
std::vector<bool> find_system_prompts(const Trace& trace) {
  std::vector<std::uint32_t> followed_by(trace.unique_blocks());
  for (std::uint32_t block = 0; block < trace.unique_blocks(); ++block) {
    if (trace.parent(block) != Trace::kNoBlock) {
      ++followed_by[trace.parent(block)];
    }
  }
  std::vector<bool> is_system(trace.unique_blocks());
  for (std::uint32_t block = 0; block < trace.unique_blocks(); ++block) {
    if (followed_by[block] >= kManySequences) {
      for (std::uint32_t b = block; b != Trace::kNoBlock && !is_system[b]; b = trace.parent(b)) {
        is_system[b] = true;
      }
    }
  }
  return is_system;
}

}  // namespace

std::vector<RequestHints> honest_hints(const Trace& trace) {
  const std::span<const Trace::Request> requests = trace.requests();
  const std::vector<bool> is_system = find_system_prompts(trace);
  std::vector<RequestHints> hints(requests.size());
  std::vector<std::uint32_t> next_of_block(trace.unique_blocks(), Trace::kNoBlock);    // requests
  std::vector<std::uint32_t> next_of_session(trace.session_count(), Trace::kNoBlock);  // requests
  for (std::size_t number = requests.size(); number-- > 0;) {
    const Trace::Request& request = requests[number];
    const std::span<const std::uint32_t> blocks = trace.blocks_of(request);
    const auto own = std::ranges::find_if(blocks, [&](std::uint32_t block) { return !is_system[block]; });
    hints[number].system_blocks = static_cast<std::uint32_t>(own - blocks.begin());
    const bool has_session = request.session != Trace::kNoSession;
    std::uint32_t next = Trace::kNoBlock;
    if (has_session) {
      next = next_of_session[request.session];
    } else if (own != blocks.end()) {
      // The next turn may fill the last block, which changes its key. So look for the block before it, if it is not of
      // a system prompt.
      const bool has_full = blocks.end() - own > 1;
      next = next_of_block[has_full ? blocks[blocks.size() - 2] : blocks.back()];
    }
    if (next != Trace::kNoBlock) {
      const double wait_ms = std::max(0.0, requests[next].time_ms - request.time_ms);
      hints[number].returns_in =
          std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(wait_ms));
    }
    for (const std::uint32_t block : blocks) {
      next_of_block[block] = static_cast<std::uint32_t>(number);
    }
    if (has_session) {
      next_of_session[request.session] = static_cast<std::uint32_t>(number);
    }
  }
  return hints;
}

}  // namespace cairn::lab
