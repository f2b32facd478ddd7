// What a user of the installed package writes first: a pool, a block stored under its key, and a lookup that finds it.
#include <cstdio>
#include <utility>

#include "cairn/pool/block_pool.h"
#include "cairn/tokens/token_sequence.h"

int main() {
  const cairn::Token tokens[] = {1, 2, 3, 4};
  const auto request = cairn::TokenBlockSequence::create(tokens, 4).value();
  const auto pool = cairn::BlockPool::create({.capacity = 8, .block_size = 4}).value();
  auto complete = pool->allocate(1).value().complete({.keys = request.keys()});
  if (!complete) {
    std::fprintf(stderr, "%s\n", complete.error().error.to_string().c_str());
    return 1;
  }
  const cairn::ImmutableBlocks stored = std::move(*complete).register_blocks().value();
  std::printf("%u block cached\n", pool->match_prefix(request.keys()).size());
  return 0;
}
