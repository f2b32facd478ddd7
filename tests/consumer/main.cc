// What a user of the installed package writes first: hash a block of tokens, name it, print where it stands.
#include <cstdio>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

int main() {
  const cairn::Token tokens[] = {1, 2, 3, 4};
  const cairn::SequenceHash first = cairn::sequence_hash_of_root(cairn::hash_block(tokens, cairn::kNoSalt));
  const cairn::SequenceHash second = cairn::chain_hash(first, cairn::hash_block(tokens, cairn::kNoSalt));

  const cairn::Result<cairn::BlockKey> key = cairn::BlockKey::make(1, second, first);
  if (!key) {
    std::fprintf(stderr, "%s\n", key.error().to_string().c_str());
    return 1;
  }
  std::printf("position %u\n", key->position());
  return 0;
}
