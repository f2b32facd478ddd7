// A pool that serves two requests with a common beginning. The part between the marks is the README's example.
#include <cstdio>
#include <numeric>
#include <vector>

#include "cairn/pool/block_pool.h"
#include "cairn/tokens/token_sequence.h"

int main() {
  using namespace cairn;
  std::vector<Token> prompt(48);
  std::iota(prompt.begin(), prompt.end(), 0U);
  // README: begin
  auto pool = BlockPool::create({.capacity = 1024, .block_size = 16}).value();
  auto request = TokenBlockSequence::create(prompt, pool->block_size()).value();

  // Take what is cached, compute the rest, and make it known under its keys.
  ImmutableBlocks cached = pool->match_prefix(request.keys());
  auto missing = static_cast<std::uint32_t>(request.block_count()) - cached.size();
  MutableBlocks fresh = pool->allocate(missing).value();
  // ... fill the blocks fresh.block_ids() with keys and values ...
  CompleteBlocks filled = std::move(fresh).complete(request, {cached.size(), request.block_count()}).value();
  ImmutableBlocks computed = std::move(filled).register_blocks().value();

  // The next request with these tokens finds them, whoever holds or has released them.
  std::printf("%u of %zu blocks are cached\n", pool->match_prefix(request.keys()).size(), request.block_count());
  // README: end
  return pool->match_prefix(request.keys()).size() == 3 ? 0 : 1;
}
