// A pool that serves two requests with a common prefix. The part between the marks is the example of README.md.
#include <cstdio>
#include <numeric>
#include <vector>

#include "cairn/core.h"

int main() {
  using namespace cairn;
  std::vector<Token> prompt(48);
  std::iota(prompt.begin(), prompt.end(), 0U);
  // README: begin
  auto pool = BlockPool::create({.capacity = 1024, .block_size = 16}).value();
  auto request = TokenBlockSequence::create(prompt, pool->block_size()).value();

  // Take the cached prefix, compute the rest, and register it under its keys.
  ImmutableBlocks cached = pool->match_prefix(request.keys());
  auto missing = static_cast<std::uint32_t>(request.block_count()) - cached.size();
  MutableBlocks fresh = pool->allocate(missing).value();
  // ... fill the blocks fresh.block_ids() with keys and values ...
  CompleteBlocks filled = std::move(fresh).complete(request, {cached.size(), request.block_count()}).value();
  ImmutableBlocks computed = std::move(filled).register_blocks().value();

  // The next request with these tokens finds the blocks, in use or released.
  std::printf("%u of %zu blocks are cached\n", pool->match_prefix(request.keys()).size(), request.block_count());
  // README: end
  return pool->match_prefix(request.keys()).size() == 3 ? 0 : 1;
}
